#pragma once
#include <tandem/ops/apply.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {

/// x (…,C), gamma (C), beta (C) -> y (…,C), mean (C), variance (C), inv_std (C), over all axes but the last:
/// y = (x − mean)·inv_std·gamma + beta, inv_std = 1/√(variance + epsilon). The variance is the biased one,
/// Σ(x − mean)²/n. Separate nodes update the running statistics, which use n/(n−1) times this variance.
/// Parameters and statistics are f64 if x is f64, otherwise f32.
class BatchNormOp final : public Op {
 public:
  explicit BatchNormOp(double epsilon) : epsilon(epsilon) {}
  std::string_view name() const override { return "batch_norm"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::follows; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }
  const double epsilon;
};

/// x (…,C) -> mean (C), variance (C), inv_std (C): only the statistics of BatchNormOp.
class BatchNormStatisticsOp final : public StreamingOp {
 public:
  explicit BatchNormStatisticsOp(double epsilon) : epsilon(epsilon) {}
  std::string_view name() const override { return "batch_norm_statistics"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  double flops_per_element() const override { return 4; }
  const double epsilon;
};

/// x (…,C), mean (C), g (…,C) -> Σ g (C), Σ g·(x − mean) (C), over all axes but the last: the sums in the
/// derivative of batch norm. g is the gradient of its output, an expression of the inputs after `mean`.
class BatchNormSumsOp final : public TakesExpression {
 public:
  explicit BatchNormSumsOp(DType dtype) : BatchNormSumsOp({{PointwiseCode::input, 0}}, dtype) {}
  BatchNormSumsOp(PointwiseExpression expression, DType dtype)
      : TakesExpression(std::move(expression), dtype, 2) {}
  OpPtr with(PointwiseExpression expression) const override;
  /// Returns the expression with its value rounded to `dtype`, for kernels that store it in a wider dtype.
  PointwiseExpression rounded() const;
  std::string_view name() const override { return "batch_norm_sums"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
};

/// Returns the outputs of BatchNormOp, computed by BatchNormStatisticsOp and a pointwise expression.
Tensors batch_norm_in_parts(const BatchNormOp& op, const Tensor& x, const Tensor& gamma, const Tensor& beta);

}  // namespace tandem::engine

namespace tandem {

/// The results of `batch_norm`: the normalized values, and the batch's statistics, from which the running
/// statistics are updated.
struct BatchNormResult {
  Tensor y, mean, variance;
};

/// Normalizes each channel of x (N,H,W,C) or (N,C) by the batch's mean and biased variance. Throws Error
/// naming shapes that do not fit. (Ioffe & Szegedy, 2015.)
BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon = 1e-5);
/// Normalizes by given statistics: (x − mean)·gamma/√(variance + epsilon) + beta, element by element.
Tensor batch_norm_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& mean,
                            const Tensor& variance, double epsilon = 1e-5);

}  // namespace tandem
