#pragma once
#include <limits>
#include <vector>

#include <tandem/memory/memory_decisions.h>

namespace tandem::engine {

/// A node of a memory problem's graph.
struct NodePlace {
  int graph, node;
};

/// Returns the nodes of all graphs in the order in which one step runs them: of one graph its own order; of a
/// ring the merged one that the decisions give, which begins with the first graph's backward pass.
std::vector<NodePlace> merged_list(const MemoryProblem& problem, const MemoryDecisions& decisions);

constexpr int kNoPlace = -1;

/// Where a value is made and read, as places of the merged list.
struct Uses {
  int made = kNoPlace;
  NodePlace producer{kNoPlace, kNoPlace};
  int last_forward = kNoPlace;    ///< the last reader of its graph's forward, or where it is made
  int first_backward = kNoPlace;  ///< the first and last readers of backward and update
  int last_backward = kNoPlace;
  int updated = std::numeric_limits<int>::max();  ///< of a parameter: the first update that changes it
  std::vector<int> forward{}, backward{};  ///< of one that is freed within a pass: all places of each pass
  bool in_forward = false;                 ///< forward makes it
  bool wraps = false;                      ///< backward reads it in the period after
};
/// Returns the uses of each value.
std::vector<Uses> uses_of(const MemoryProblem& problem, const MemoryDecisions& decisions,
                          const std::vector<NodePlace>& list);

}  // namespace tandem::engine
