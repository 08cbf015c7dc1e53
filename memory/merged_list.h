#pragma once
#include <limits>
#include <vector>

#include <tandem/memory/memory_decisions.h>

namespace tandem::engine {

/// A node of a memory problem's graph.
struct NodePlace {
  int graph, node;
};

constexpr int kNoPlace = -1;

/// Where a value is made and read, as places of the merged list.
struct Uses {
  int made = kNoPlace;
  NodePlace producer{kNoPlace, kNoPlace};
  int last_forward = kNoPlace;    ///< the last reader of its graph's forward, or where it is made
  int first_backward = kNoPlace;  ///< the first and last readers of backward and update
  int last_backward = kNoPlace;
  int updated = std::numeric_limits<int>::max();  ///< of a parameter: the first update that changes it
  std::vector<int> forward{}, backward{};  ///< all places of each pass; where it is made is of the first
  bool in_forward = false;                 ///< forward makes it
  bool wraps = false;                      ///< backward reads it in the period after
};

/// The nodes of all graphs in the order in which one step runs them.
struct MergedList {
  std::vector<NodePlace> nodes;
  std::vector<Uses> uses;  ///< by place in MemoryProblem::values
};

/// Of one graph the list is its own order; of a ring the merged one that decisions give
/// (MemoryDecisions::forward_before), which begins with the first graph's backward pass.
MergedList merged_list(const MemoryProblem& problem, const std::vector<std::vector<int>>& forward_before);

}  // namespace tandem::engine
