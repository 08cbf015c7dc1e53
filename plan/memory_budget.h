#pragma once
#include <vector>

#include <tandem/core/schedule/lower.h>
#include <tandem/memory/memory_decisions.h>
#include <tandem/memory/step_problem.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// The memory plan of one device.
struct DevicePlan {
  StepProblem step;
  CostedPlan plan;
};
struct PlannedMemory {
  Program program;
  std::vector<DevicePlan> devices;
};

/// Returns whether a plan decides what a step swaps and computes again: the strategy names a policy, or the
/// Program without a plan exceeds the budget, no list says what to do, and the schedule flushes.
bool plans_memory(const Strategy& strategy, const Program& plain);

/// Plans the memory of a step by the strategy's policy, device by device, and carries the plans out. `plain`
/// is the Program of the step without a plan, and `options` are those that lowered it. A plan counts live
/// bytes, and a budget is of the extent of memory: so it plans with smaller and smaller limits until the
/// placement is within the budget. Throws Error if there is no such plan, with the smallest budget that was
/// found; the same if a plan keeps more on the host than the host's budget. A strategy with the plans of an
/// earlier run repeats these, and throws Error if they are for another step.
PlannedMemory within_budget(const ListedGraph& step, const Program& plain, const LowerOptions& options,
                            const Strategy& strategy);

/// Returns the most bytes that a plan has on the host at once.
std::int64_t host_bytes(const MemoryProblem& problem, const MemoryPlan& plan);

/// Throws Error if a device's planned peak exceeds the budget, naming the device and the smallest budget.
void check_budget(const Program& program, std::int64_t budget);

}  // namespace tandem::engine
