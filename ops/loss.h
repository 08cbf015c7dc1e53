#pragma once
#include <tandem/core/op.h>
#include <tandem/core/tensor.h>

namespace tandem {

/// exp(x − max) / Σ exp(x − max) over the last axis, or its logarithm.
class Softmax final : public Op {
 public:
  explicit Softmax(bool logarithm) : logarithm(logarithm) {}
  std::string_view name() const override { return "softmax"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override {
    return {{0, 0, Alias::in_place}};
  }

  const bool logarithm;
};

/// (logits [N, C], labels i32 [N]) -> mean over N of −log softmax(logits)[label], a scalar.
class CrossEntropy final : public Op {
 public:
  std::string_view name() const override { return "cross_entropy"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
};

/// (logits [N, C], labels i32 [N], g []) -> (softmax(logits) − onehot(labels))·g/N.
class CrossEntropyGrad final : public Op {
 public:
  std::string_view name() const override { return "cross_entropy_grad"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override {
    return {{0, 0, Alias::in_place}};
  }
};

/// Over the last axis; f32 or f64.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
/// Mean cross entropy of logits [N, C] (f32 or f64) against labels i32 [N]: a scalar of the logits' dtype. A
/// label outside 0 … C−1 throws Error, naming the sample, when the op runs.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
/// How many rows of logits [N, C] have their first maximum at their label: i32 [].
Tensor correct_count(const Tensor& logits, const Tensor& labels);

}  // namespace tandem
