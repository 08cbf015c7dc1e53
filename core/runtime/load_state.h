#pragma once
#include <map>
#include <string>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Throws Error where `state`, by path, does not fit the Program's: one is missing that is not the
/// optimizer's (its path does not begin with kOptimizerPath), mismatched, or unknown; `exactly`: where the
/// optimizer's is missing, or not used, as well.
void check_state(const Program& program, const StateDict& state, bool exactly = false);

/// Sets the states of one stage in a rank's memory to such a `state`. What is not named starts at zero.
void load_state(const Program& program, int stage, RankMemory& memory, const StateDict& state);

}  // namespace tandem::engine
