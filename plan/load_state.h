#pragma once
#include <map>
#include <string>

#include <tandem/core/executable.h>
#include <tandem/core/program.h>
#include <tandem/core/tensor.h>

namespace tandem {

/// Throws Error where `state`, by path, does not fit the states of one stage: one is missing that is not the
/// optimiser's (its path does not begin with kOptimizerPath), mismatched, or unknown to the Program.
void check_state(const Program& program, int stage, const std::map<std::string, Tensor>& state);

/// Sets the states of one stage in a rank's memory, or throws what `check_state` does and sets none. What is
/// not named and belongs to the optimiser starts at zero.
void load_state(const Program& program, int stage, RankMemory& memory,
                const std::map<std::string, Tensor>& state);

}  // namespace tandem
