#pragma once
#include <string>
#include <vector>

#include <tandem/plan/memory_budget.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Reads decisions from a JSON file into a strategy:
///
///     {"cuts": ["block2"],                               first module of each stage but the first
///      "fusion_groups": [["head.weight", "head.bias"],   parameters reduced together
///                        {"parameters": ["stem.weight"], "threads": 2}],  and by how many threads
///      "swap": ["block0"], "recompute": ["block3 relu"]} activations, by module or by module and op
///
/// and, as a run writes it, "arrays" (sizes), "array_ring", "turns", "memory": the memory plan of each device
/// or turn, which fits that step alone, and "copy_link": {"bytes_per_ms", "duplex"}, over which it swaps.
///
/// A missing key means none. Throws Error naming the file and the fault: the file is unreadable or not JSON,
/// a key is unknown or given twice, or a value has another type.
void read_plan(const std::string& file, Strategy& strategy);

/// Returns how many models train at once, if those of the file's run take turns (TrainerOptions::turns).
/// Throws Error as `read_plan` does.
std::vector<int> read_turns(const std::string& file);

/// Returns the text of such a file with these cuts alone.
std::string plan_with_cuts(const std::vector<std::string>& cuts);
/// Returns the text of a file with which another run has the same cuts, arrays, and memory plans.
std::string plan_of_run(const Strategy& strategy, const std::vector<DevicePlan>& memory,
                        const std::vector<int>& turns);

}  // namespace tandem::engine
