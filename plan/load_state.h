#pragma once
#include <map>
#include <string>

#include <tandem/core/executable.h>
#include <tandem/core/program.h>
#include <tandem/core/tensor.h>

namespace tandem {

/// Throws Error where `state`, by path, does not fit the Program's: one is missing that is not the
/// optimiser's (its path does not begin with kOptimizerPath), mismatched, or unknown; `exactly`: where the
/// optimiser's is missing, or not used, as well.
void check_state(const Program& program, const std::map<std::string, Tensor>& state, bool exactly = false);

/// Sets the states of one stage in a rank's memory to such a `state`. What is not named starts at zero.
void load_state(const Program& program, int stage, RankMemory& memory,
                const std::map<std::string, Tensor>& state);

}  // namespace tandem
