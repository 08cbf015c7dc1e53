#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Moves each max pooling before the relu whose output only it reads. With 2×2 windows the relu then has a
/// quarter of the elements, and backward need not keep the pooling's input. Values and gradients keep their
/// bits, since relu keeps the order of the elements that it lets pass, and passes no gradient to the others.
Graph pool_first(const Graph& graph);

}  // namespace tandem::engine
