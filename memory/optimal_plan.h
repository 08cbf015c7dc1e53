#pragma once
#include <optional>

#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// Returns the plan with the least time of all that a MemoryPlan can express within the limit: any order of
/// a pair's nodes, values copied and computed again any number of times. Without `copies`, of all that copy
/// nothing. Returns nothing if there is none. `known` is a plan within the limit, which cuts the search
/// short. The search goes on from the most promising of the states that it has reached. Throws Error for
/// problems that are too large for it: with more than two graphs or 64 values beside parameters, or with too
/// many states, of which a chain of layers can have as many as 4 to the power of their number.
std::optional<CostedPlan> optimal_plan(const MemoryProblem& problem, std::int64_t limit, bool copies,
                                       const std::optional<CostedPlan>& known = {});

}  // namespace tandem::engine
