#pragma once
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

}  // namespace tandem::engine
