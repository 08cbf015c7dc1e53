#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

/// exp(x − max) / Σ exp(x − max) over the last axis, or its logarithm.
class SoftmaxOp final : public Op {
 public:
  explicit SoftmaxOp(bool logarithm) : logarithm(logarithm) {}
  std::string_view name() const override { return "softmax"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override {
    return {{0, 0, Alias::in_place}};
  }

  const bool logarithm;
};

/// (logits [N, C], labels i32 [N]) -> mean over N of −Σ t·log softmax(logits), a scalar. The target t is 1 at
/// the label, or with label smoothing s 1 − s there and s/C more everywhere (Szegedy et al. 2016). Logits in
/// bf16 or f16 are refused: a loss is computed in f32.
class CrossEntropyOp final : public Op {
 public:
  /// Throws Error unless 0 ≤ smoothing ≤ 1.
  explicit CrossEntropyOp(double smoothing = 0);
  std::string_view name() const override { return "cross_entropy"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const double smoothing;
};

/// (logits [N, C], labels i32 [N], g []) -> (softmax(logits) − t)·g/N, with the same target t.
class CrossEntropyGradOp final : public Op {
 public:
  explicit CrossEntropyGradOp(double smoothing = 0) : smoothing(smoothing) {}
  std::string_view name() const override { return "cross_entropy_grad"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override {
    return {{0, 0, Alias::in_place}};
  }

  const double smoothing;
};

}  // namespace tandem::engine

namespace tandem {

/// Over the last axis.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
/// Mean cross entropy of logits [N, C] against labels i32 [N]: a scalar of the logits' dtype, which is f32 or
/// f64 (Error for bf16 and f16: cast first). A label outside 0 … C−1 throws Error, naming the sample, when
/// the op runs.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing = 0);

/// Means over all elements of two Tensors of one type (Error otherwise), as scalars.
/// −t·log p − (1−t)·log(1−p) with p = sigmoid(logits) and targets t in [0, 1]; no logit is too large for it.
Tensor bce_with_logits(const Tensor& logits, const Tensor& targets);
/// (a − b)²
Tensor mse_loss(const Tensor& a, const Tensor& b);
/// |a − b|, with derivative 0 where they are equal.
Tensor l1_loss(const Tensor& a, const Tensor& b);
/// (a − b)²/(2β) where |a − b| < β, |a − b| − β/2 elsewhere. Throws Error unless β > 0.
Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, double beta = 1);

/// How many rows of logits [N, C] have their first maximum at their label: i32 [].
Tensor correct_count(const Tensor& logits, const Tensor& labels);

}  // namespace tandem
