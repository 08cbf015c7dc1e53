#pragma once
#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

/// Applies an op; this is the only way to use one. Inside a Trace it adds a node; outside, it runs the kernel
/// at once (eager.h). Throws Error naming module path, op and shapes if the inputs do not fit.
Tensors apply_op(OpPtr op, Tensors inputs);
/// Applies a copy of `op`, whose class is final, since a copy keeps the type that the caller sees.
template <std::derived_from<Op> O>
requires std::is_final_v<O> Tensors apply_op(const O& op, Tensors inputs) {
  return apply_op(std::make_shared<O>(op), std::move(inputs));
}
/// Applies an op and returns its first output.
Tensor apply_op1(OpPtr op, Tensors inputs);

/// The vmap rule of ops that gain nothing from a joint kernel: applies a MappedOp (mapped.h).
Tensors map_over_models(OpPtr op, const VmapArgs& args);
template <std::derived_from<Op> O>
requires std::is_final_v<O> Tensors map_over_models(const O& op, const VmapArgs& args) {
  return map_over_models(std::make_shared<O>(op), args);
}

}  // namespace tandem::engine
