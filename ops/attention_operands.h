#pragma once
#include <tandem/ops/attention.h>
#include <tandem/ops/launch_operands.h>
#include <tandem/ops/sample_draws.h>

namespace tandem::engine {

/// Tells which weights the dropout of an attention keeps: those that DropoutOp keeps of an array
/// (N,heads,T,S).
struct AttentionDropout : DropoutMask {
  AttentionSize size;

  AttentionDropout(const KernelSpec& spec, const AttentionForm& form, const AttentionSize& size)
      : DropoutMask(spec, {DType::f32, {size.samples, size.heads, size.queries, size.keys}}, form.dropout,
                    form.seed()),
        size(size) {}

  /// Returns the number of a weight within its sample.
  std::int64_t element(std::int64_t head, std::int64_t query, std::int64_t key) const {
    return (head * size.queries + query) * size.keys + key;
  }
};

/// The operands of a launch of AttentionOp or AttentionGradOp.
template <class T> struct AttentionOperands {
  const T *q, *k, *v;
  std::int64_t stride;   ///< elements from one position to the next in q, k and v
  const bool* key_mask;  ///< (N,S), or null
  bool has_seed;

  AttentionOperands(const AttentionForm& form, const AttentionSize& size, const Launch& l)
      : q(input<T>(l, 0)),
        k(form.packed ? q + size.width() : input<T>(l, 1)),
        v(form.packed ? q + 2 * size.width() : input<T>(l, 2)),
        stride(size.stride(form)),
        key_mask(form.key_masked ? input<bool>(l, form.mask()) : nullptr),
        has_seed(form.dropout > 0) {}
};

/// Where the gradients of q, k and v go.
template <class T> struct AttentionGradients {
  T *q, *k, *v;
  AttentionGradients(const AttentionForm& form, const AttentionSize& size, const Launch& l)
      : q(output<T>(l, 0)),
        k(form.packed ? q + size.width() : output<T>(l, 1)),
        v(form.packed ? q + 2 * size.width() : output<T>(l, 2)) {}
};

}  // namespace tandem::engine
