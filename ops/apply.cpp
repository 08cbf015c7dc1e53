#include <tandem/ops/apply.h>

#include <tandem/core/graph/trace.h>
#include <tandem/ops/eager.h>

namespace tandem::engine {

Tensors apply_op(OpPtr op, Tensors inputs) {
  if (Trace* trace = Trace::active()) return trace->apply(std::move(op), inputs);
  return apply_eager(std::move(op), std::move(inputs));
}

Tensor apply_op1(OpPtr op, Tensors inputs) { return apply_op(std::move(op), std::move(inputs)).at(0); }

}  // namespace tandem::engine
