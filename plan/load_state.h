#pragma once
#include <map>
#include <string>

#include <tandem/core/executable.h>
#include <tandem/core/program.h>
#include <tandem/core/tensor.h>

namespace tandem {

/// Sets the states of one stage, by path, in a rank's memory. What is not named and belongs to the optimiser
/// (its path begins with kOptimizerPath) starts at zero; anything else missing or mismatched is an Error.
void load_state(const Program& program, int stage, RankMemory& memory,
                const std::map<std::string, Tensor>& state);

}  // namespace tandem
