#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

/// Applies an op; this is the only way to use one. Inside a Trace it adds a node; outside, it runs the kernel
/// at once (eager.h). Throws Error naming module path, op and shapes if the inputs do not fit.
Tensors apply_op(OpPtr op, Tensors inputs);
/// Applies an op and returns its first output.
Tensor apply_op1(OpPtr op, Tensors inputs);

}  // namespace tandem::engine
