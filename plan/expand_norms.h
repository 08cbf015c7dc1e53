#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Splits each batch norm into the batch's statistics and a pointwise expression of them. The expression can
/// then fuse with the nodes that follow, and be computed again without the statistics. Every element keeps
/// its bits (ops/norm.h).
Graph expand_norms(const Graph& graph);

}  // namespace tandem::engine
