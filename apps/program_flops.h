#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::apps {

/// Returns the operations of all instructions of a Program, for one batch.
inline double flops_of(const engine::Program& program) {
  double flops = 0;
  for (const engine::Instruction& s : program.instructions)
    if (s.op) flops += s.op->cost(s.inputs, s.outputs).flops;
  return flops;
}

}  // namespace tandem::apps
