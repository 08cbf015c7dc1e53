#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// What becomes of a value between its readers: with the first four, between the last of the forward pass and
/// the first of the backward pass; between those of one pass it stays.
enum class Treatment {
  retain,     ///< it stays on the device
  swap,       ///< it moves to the host, and back in time
  recompute,  ///< it is freed, and computed again where it is read, and wherever another one needs it
  recompute_and_keep,     ///< the same, and stays from the first time it is computed again
  recompute_each,         ///< it is freed after each reader, and computed again for the next
  recompute_in_backward,  ///< the same between readers of backward; before, it stays
};
/// Returns whether backward begins with a value that forward has freed.
bool is_recomputed_for_backward(Treatment treatment);

struct MemoryDecisions {
  std::vector<Treatment> values;  ///< by place in MemoryProblem::values
  /// Of a ring, for each node of backward and update of each graph: how many forward nodes of the next graph
  /// have run by then. The rest run after the last one. Sizes must be those of `retain_all`.
  std::vector<std::vector<int>> forward_before{};
};

/// Everything retained, and no forward node before the backward of the preceding graph has ended.
MemoryDecisions retain_all(const MemoryProblem& problem);

/// Returns the values that a plan may treat, in the order of forward: intermediate ones that forward makes
/// and backward reads.
std::vector<int> candidates_of(const MemoryProblem& problem);
/// Returns intermediate values that forward makes and one pass uses twice, with other nodes between.
std::vector<int> read_apart(const MemoryProblem& problem);

/// A plan, and what it costs.
struct CostedPlan {
  MemoryPlan plan;
  MemoryCost cost;
};

/// How far a plan is above a limit in bytes, and its time in ms. The smaller, the better.
using PlanRank = std::pair<std::int64_t, double>;
PlanRank rank_of(const MemoryCost& cost, std::int64_t limit);
/// Every plan ranks below this.
inline constexpr PlanRank kWorst{std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<double>::infinity()};

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
