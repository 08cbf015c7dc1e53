#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

/// Applies an op, which is the one way to use it: adds a node inside a Trace, and runs the kernel at once
/// outside (eager.h). Throws Error naming module path, op and shapes where the inputs do not fit.
Tensors apply_op(OpPtr op, Tensors inputs);
/// `apply_op` for ops with one output.
Tensor apply_op1(OpPtr op, Tensors inputs);

}  // namespace tandem::engine
