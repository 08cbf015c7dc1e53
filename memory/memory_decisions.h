#pragma once
#include <vector>

#include <tandem/memory/memory_problem.h>

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

}  // namespace tandem::engine
