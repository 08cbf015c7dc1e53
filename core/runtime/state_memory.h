#pragma once
#include <span>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Checks that `state` fits the Program's states. Throws Error if one is missing, has another type, or is
/// unknown. The optimizer's states (their paths begin with kOptimizerPath) may be missing or unused, unless
/// `exactly`.
void check_state(const Program& program, const StateDict& state, bool exactly = false);

/// A state and where it lies in a rank's memory.
struct StateMemory {
  const StateBlock& state;
  std::span<std::byte> bytes;
};
/// The states that one device of the Program holds.
std::vector<StateMemory> states_of_device(const Program& program, int device, const RankMemory& memory);

/// Sets the states of one device to `state`, which was checked. States that are missing in it become zero.
void load_state(const Program& program, int device, RankMemory& memory, const StateDict& state);

}  // namespace tandem::engine
