#pragma once
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// x (N,…,C), gamma (C) [, beta (C)] -> y (N,…,C), inv_std (N,groups) [, mean (N,groups)]. In each sample,
/// normalizes each group of C/groups neighboring channels over all its pixels: y = (x −
/// mean)·inv_std·gamma + beta, inv_std = 1/√(variance + epsilon), with the biased variance. If `centered` is
/// false, beta and mean are absent and the variance is the mean square. Layer norm is the case of one group
/// and no pixel axes. Parameters and statistics are f64 if x is f64, otherwise f32.
class GroupNormOp final : public StreamingOp {
 public:
  GroupNormOp(std::int64_t groups, double epsilon, bool centered)
      : groups(groups), epsilon(epsilon), centered(centered) {}
  std::string_view name() const override { return "group_norm"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::follows; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  double flops_per_element() const override { return 7; }
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }
  const std::int64_t groups;
  const double epsilon;
  const bool centered;
};

/// x, gamma, grad_y, inv_std [, mean] -> gradients of x and gamma [, of beta]; inv_std and mean are the
/// outputs of GroupNormOp. Computed by one kernel; has no derivative.
class GroupNormGradOp final : public StreamingOp {
 public:
  GroupNormGradOp(std::int64_t groups, bool centered) : groups(groups), centered(centered) {}
  std::string_view name() const override { return "group_norm_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  double flops_per_element() const override { return 9; }
  std::vector<Alias> may_alias(TypesView) const override {
    return {{0, 2, Alias::in_place}, {0, 0, Alias::in_place}};
  }
  const std::int64_t groups;
  const bool centered;
};

/// Extents of a group norm, for kernels: x is (samples, pixels, channels).
struct GroupNormSize {
  std::int64_t samples, pixels, channels, groups;
  GroupNormSize(const TensorType& x, std::int64_t groups);
  std::int64_t width() const { return channels / groups; }  ///< channels per group
  std::int64_t sample() const { return pixels * channels; }
  double group() const { return static_cast<double>(pixels * width()); }  ///< elements per group and sample
};

}  // namespace tandem::engine

namespace tandem {

/// Normalizes each group of channels in each sample of x (N,…,C); gamma and beta are (C). Throws Error naming
/// shapes that do not fit. (Wu & He, 2018.)
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& gamma, const Tensor& beta,
                  double epsilon = 1e-5);
/// Normalizes each row of x (…,C). (Ba, Kiros & Hinton, 2016.)
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon = 1e-5);
/// x·gamma/√(mean of x² + epsilon) for each row of x (…,C). (Zhang & Sennrich, 2019.)
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double epsilon = 1e-5);

}  // namespace tandem
