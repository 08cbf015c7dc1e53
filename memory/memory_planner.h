#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include <tandem/memory/memory_decisions.h>
#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// Turns decisions into lists of instructions. Values are freed at their last use. A swapped value leaves
/// after its last forward reader, and its memory is free where the copy has ended, or earlier, after a wait,
/// where the limit needs it. It comes back as late as still avoids a stall, as far as the limit allows. The
/// plan can exceed the limit all the same. One planner makes many plans, one after the other, in memory that
/// it keeps, as a search wants. It keeps a reference to the problem.
class MemoryPlanner {
 public:
  explicit MemoryPlanner(const MemoryProblem& problem);
  ~MemoryPlanner();

  /// Returns nothing if a value cannot be computed again, or if the plan does not rank below `bound`, which
  /// is often known long before the plan is.
  std::optional<CostedPlan> plan(const MemoryDecisions& decisions, std::int64_t limit,
                                 const PlanRank& bound = kWorst);

 private:
  class Lists;
  std::unique_ptr<Lists> lists_;
};
/// Returns the plan of a planner that makes no other.
std::optional<CostedPlan> plan_of(const MemoryProblem& problem, const MemoryDecisions& decisions,
                                  std::int64_t limit, const PlanRank& bound = kWorst);

}  // namespace tandem::engine
