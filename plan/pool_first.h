#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph with max pooling before the relu whose output it alone reads, rather than after it: a relu then
/// has a quarter of the elements where windows are 2×2, and backward need not keep what was pooled. Values
/// and gradients have the bits they had, since relu keeps the order of what it lets pass, and passes no
/// gradient where it does not.
Graph pool_first(const Graph& graph);

}  // namespace tandem::engine
