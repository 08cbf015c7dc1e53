#pragma once
#include <map>
#include <string>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Throws Error naming a state that is missing from `state` (by path), has another type, or is unknown to the
/// Program. Optimizer states (their paths begin with kOptimizerPath) can be missing, and can be unknown to a
/// Program without an optimizer, unless `exactly` is set.
void check_state(const Program& program, const StateDict& state, bool exactly = false);

/// Sets the states of one stage in a rank's memory to those of `state`. Missing ones start at zero.
void load_state(const Program& program, int stage, RankMemory& memory, const StateDict& state);

}  // namespace tandem::engine
