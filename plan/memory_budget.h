#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/lower.h>
#include <tandem/memory/memory_plan.h>
#include <tandem/memory/step_problem.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// A step does not fit into its memory budget.
class BudgetTooSmall : public Error {
 public:
  BudgetTooSmall(const std::string& message, std::int64_t smallest) : Error(message), smallest(smallest) {}
  std::int64_t smallest;  ///< budget that was found to work, in bytes, with the times of the same profile
};

/// Returns "52531200 bytes (52.6 MB)": rounded up, so that both are enough.
std::string enough_bytes(std::int64_t bytes);

/// The memory plan of one device.
struct DevicePlan {
  StepProblem step;
  CostedPlan plan;
  /// Kernels whose times the strategy's profile lacks: they are estimates. All, if there is no profile.
  int estimated = 0;
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
/// placement is within the budget. If swaps exceed the host's budget, it plans without them. Throws
/// BudgetTooSmall if there is no such plan. A strategy with the plans of an earlier run repeats these, and
/// throws Error if they are for another step.
PlannedMemory within_budget(const ListedGraph& step, const Program& plain, const LowerOptions& options,
                            const Strategy& strategy);

/// Throws BudgetTooSmall if a device's planned peak exceeds the budget. The message names the device.
void check_budget(const Program& program, std::int64_t budget);
/// Throws Error if a device's swaps take more of the host's memory than its budget. 0: there is none.
void check_host_budget(const Program& program, std::int64_t budget);

}  // namespace tandem::engine
