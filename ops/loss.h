#pragma once
#include <cstdint>
#include <optional>

#include <tandem/ops/apply.h>

namespace tandem::engine {

/// exp(x − max) / Σ exp(x − max) over the last axis; its logarithm if `logarithm` is set.
class SoftmaxOp final : public StreamingOp {
 public:
  explicit SoftmaxOp(bool logarithm) : logarithm(logarithm) {}
  std::string_view name() const override { return "softmax"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return apply_op(*this, args.inputs); }
  double flops_per_element() const override { return 10; }  // maximum, exponential, sum, quotient
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }

  const bool logarithm;
};

/// Targets of a cross entropy, made of labels.
struct Targets {
  double smoothing = 0;
  std::optional<std::int32_t> ignored{};  ///< samples with this label do not count
};

/// (logits [N, C], labels i32 [N]) -> mean over the samples that count of −Σ t·log softmax(logits), a scalar;
/// 0 if none counts. The target t is 1 at the label and 0 elsewhere; label smoothing s makes it (1 − s)·t +
/// s/C (Szegedy et al. 2016). Throws Error on logits in bf16 or f16: a loss is computed in f32 or f64.
class CrossEntropyOp final : public StreamingOp {
 public:
  /// Throws Error unless 0 ≤ smoothing ≤ 1.
  explicit CrossEntropyOp(const Targets& targets = {});
  std::string_view name() const override { return "cross_entropy"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  double flops_per_element() const override { return 10; }  // maximum, exponential, sum, quotient

  const Targets targets;
};

/// (logits [N, C], labels i32 [N], g []) -> (softmax(logits) − t)·g/N', with the target t of CrossEntropyOp,
/// for the N' samples that count, and 0 for the others.
class CrossEntropyGradOp final : public StreamingOp {
 public:
  explicit CrossEntropyGradOp(const Targets& targets = {}) : targets(targets) {}
  std::string_view name() const override { return "cross_entropy_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  double flops_per_element() const override { return 10; }  // maximum, exponential, sum, quotient
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }

  const Targets targets;
};

}  // namespace tandem::engine

namespace tandem {

/// Softmax over the last axis, and its logarithm.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
/// Returns the mean cross entropy of logits [N, C] or […, C] against labels [N] or […] of an integer dtype, a
/// scalar of the logits' dtype. The dtype is f32 or f64; others throw Error (cast first). A label outside 0 …
/// C−1 throws Error, naming the sample, when the op runs.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing = 0);

struct CrossEntropyOptions {
  double label_smoothing = 0;
  /// Samples with this label do not count.
  std::optional<std::int64_t> ignore_index{};
  /// [C]: each sample counts as much as its class weighs, and the mean is over these weights.
  Tensor class_weights{};
};
/// Returns the mean cross entropy of the samples that count. If none does, loss and gradient are 0. In
/// micro-batches and on replicas, the loss of a batch is the mean over these parts, however many samples
/// count in each.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options);

/// The next four return the mean of an expression over all elements, a scalar. Both Tensors have the same
/// floating type; otherwise they throw Error.
/// −t·log p − (1−t)·log(1−p) with p = sigmoid(logits) and targets t in [0, 1]; does not overflow.
Tensor bce_with_logits(const Tensor& logits, const Tensor& targets);
/// (a − b)²
Tensor mse_loss(const Tensor& a, const Tensor& b);
/// |a − b|; its derivative is 0 if they are equal.
Tensor l1_loss(const Tensor& a, const Tensor& b);
/// (a − b)²/(2β) if |a − b| < β, otherwise |a − b| − β/2. Throws Error unless β > 0.
Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, double beta = 1);

/// Returns how many rows of logits […, C] have their first maximum at their label, as i32 [].
Tensor correct_count(const Tensor& logits, const Tensor& labels);

}  // namespace tandem
