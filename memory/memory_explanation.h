#pragma once
#include <set>
#include <string>
#include <vector>

#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// What a plan does with a value that forward makes and backward reads, and why.
struct ValueVerdict {
  int value;            ///< place in MemoryProblem::values
  std::string made_by;  ///< name of its node
  double rest_ms;       ///< between forward and backward, if nothing is copied or computed again
  double swap_ms;       ///< of its copies, there and back; 0: there is no link
  double recompute_ms;  ///< of the nodes that make it again if all others are kept; 0: that cannot be
  bool is_swapped, is_recomputed;
  double stall_ms;  ///< of the waits for its copies
};

/// Returns the verdicts of a plan, in the order of forward. Throws what `replay` throws.
std::vector<ValueVerdict> explain(const MemoryProblem& problem, const MemoryPlan& plan);

/// The activations that a plan copies, and those that it computes again.
struct EvictedValues {
  std::set<int> swapped, recomputed;
};
EvictedValues evicted_by(const MemoryProblem& problem, const MemoryPlan& plan);

}  // namespace tandem::engine
