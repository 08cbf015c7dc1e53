#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/ops/apply.h>

namespace tandem::engine {

/// (x [N, …], seed i64 []) -> x/(1−p) for kept elements, 0 for the others. Each element is kept with
/// probability 1−p. The choice depends only on the model's seed, the batch, the node's rng_id, the sample's
/// number in the whole batch (over replicas and micro-batches) and the element's number in the sample, so the
/// gradient is the same op.
class DropoutOp final : public StreamingOp {
 public:
  /// Throws Error unless 0 ≤ p < 1.
  explicit DropoutOp(double p);
  std::string_view name() const override { return "dropout"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::follows; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  /// Philox: ten rounds of two multiplications give four draws.
  double flops_per_element() const override { return 20; }
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }
  bool random() const override { return true; }

  const double p;
};

enum class Distribution : std::uint8_t { standard_normal, uniform };
std::string_view name_of(Distribution distribution);

/// (seed i64 []) -> a tensor [N, …] of random numbers, which depend on the same as those of DropoutOp.
class NoiseOp final : public Op {
 public:
  NoiseOp(Distribution distribution, TensorType type) : distribution(distribution), type(std::move(type)) {}
  std::string_view name() const override { return "noise"; }
  std::string label() const override { return std::string(name_of(distribution)); }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs&) const override { return {Tensor()}; }
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override {
    return streaming_work(inputs, outputs, 40);
  }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  bool random() const override { return true; }

  const Distribution distribution;
  const TensorType type;
};

}  // namespace tandem::engine

namespace tandem {

/// Drops elements of `x` with probability `p` and divides the others by 1−p. `x` has a floating dtype and a
/// leading axis of samples; `seed` is the model's own, an i64 scalar. Returns `x` itself if p = 0.
Tensor dropout(const Tensor& x, double p, const Tensor& seed);

/// Returns standard normal numbers, new ones at each call and in each batch. `type` has a floating dtype and
/// a leading axis of samples; `seed` is the model's own, as `nn::current_seed()` returns it.
Tensor standard_normal(const TensorType& type, const Tensor& seed);
/// The same with numbers in [0, 1), which are multiples of 2^−24; in bf16 and f16 they are rounded, also
/// to 1.
Tensor uniform(const TensorType& type, const Tensor& seed);

}  // namespace tandem
