#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph with batch norms taken apart: statistics of the batch, and an expression of them. The expression
/// can then fuse with what follows, and be evaluated again without the statistics. Every element has the bits
/// it had (ops/norm.h).
Graph expand_norms(const Graph& graph);

}  // namespace tandem::engine
