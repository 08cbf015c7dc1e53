#pragma once
#include <tandem/memory/memory_plan.h>

namespace tandem::testing {

/// What docs/memory.md says about plans, in as few lines as possible. It shares no code with memory/. Returns
/// what a plan costs. Throws Error naming the first instruction that the format does not allow there, or the
/// start or end if that is not as it must be.
engine::MemoryCost interpreted(const engine::MemoryProblem& problem, const engine::MemoryPlan& plan);

/// `replay` and `interpreted` find the costs of a plan that its planner says: the peak to the byte.
void expect_replays(const engine::MemoryProblem& problem, const engine::CostedPlan& plan);

}  // namespace tandem::testing
