#pragma once
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// What an attention computes, besides its operands.
struct AttentionForm {
  int heads = 1;
  bool packed = false;      ///< queries, keys and values are one operand (N,T,3C)
  bool causal = false;      ///< query t sees the keys 0 … t only
  bool key_masked = false;  ///< there is a mask of the keys
  double scale = 1;         ///< of the products of queries and keys
  double dropout = 0;       ///< the probability of dropping a weight

  // The operands: projections, then the mask of the keys, then the seed.
  int projections() const { return packed ? 1 : 3; }
  int mask() const { return projections(); }  ///< its number, if there is one
  int seed() const { return mask() + int{key_masked}; }
  int operands() const { return seed() + int{dropout > 0}; }
};

/// Extents of an attention: N samples, T queries, S keys, heads of D features, C = heads·D.
struct AttentionSize {
  std::int64_t samples, queries, keys, heads, features;
  std::int64_t width() const { return heads * features; }
  /// The elements from one position to the next, in an operand of its own or in the packed one.
  std::int64_t stride(const AttentionForm& form) const { return form.packed ? 3 * width() : width(); }
};
/// Throws Error naming operands that do not fit.
AttentionSize attention_size(const AttentionForm& form, TypesView inputs);

/// q (N,T,C), k and v (N,S,C), or all in one (N,T,3C) [, mask bool (N,S)] [, seed i64 []] -> y (N,T,C),
/// log_sums (N,heads,T). In each head, which is C/heads neighboring features, y = softmax(scale·q·kᵀ)·v, over
/// the keys that the query may see: those whose mask is true and, if causal, that do not come after it. A
/// query that may see none gives 0. q, k and v must be finite; this includes keys that the mask hides.
/// log_sums are the logarithms of the sums of exponentials, f64 if q is f64, otherwise f32. No array of T·S
/// elements exists.
///
/// Dropout works on the weights, as DropoutOp on an array (N,heads,T,S).
class AttentionOp final : public Op {
 public:
  explicit AttentionOp(AttentionForm form);
  std::string_view name() const override { return "attention"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::low; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  bool random() const override { return form.dropout > 0; }
  const AttentionForm form;
};

/// The inputs of AttentionOp, its outputs y and log_sums, and the gradient of y -> the gradients of q, k and
/// v, or of the packed operand. Computes the weights again, tile by tile. Has no derivative.
class AttentionGradOp final : public Op {
 public:
  explicit AttentionGradOp(AttentionForm form) : form(form) {}
  std::string_view name() const override { return "attention_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  bool random() const override { return form.dropout > 0; }
  const AttentionForm form;
};

}  // namespace tandem::engine

namespace tandem {

struct AttentionOptions {
  int heads = 1;
  bool causal = false;  ///< query t sees the keys 0 … t only
  double scale = 0;     ///< of the products of queries and keys; 0: 1/√(C/heads)
  double dropout = 0;   ///< the probability of dropping a weight; the others are divided by 1 − dropout
  Tensor seed{};        ///< the model's own, as for `dropout`
  Tensor key_mask{};  ///< bool (N,S): may the queries of the sample see the key? Undefined: they may see all
};

/// Returns softmax(scale·q·kᵀ)·v for each head, (N,T,C), for queries q (N,T,C), keys k and values v (N,S,C).
/// A query that may see no key gives 0. q, k and v must be finite; this includes keys that the mask hides.
/// Throws Error naming shapes that do not fit. (Vaswani et al., 2017; computed tile by tile as by Dao et al.,
/// 2022.)
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);
/// The same for queries, keys and values side by side, (N,T,3C).
Tensor attention(const Tensor& qkv, const AttentionOptions& options);

}  // namespace tandem
