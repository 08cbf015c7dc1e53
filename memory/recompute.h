#pragma once
#include <vector>

#include <tandem/core/graph.h>

namespace tandem {

/// Backward's readers get the values computed again, just before they need them, from what is kept. Draws the
/// same random numbers; never repeats an update of statistics.
Graph insert_recomputes(const Graph& graph, const std::vector<ValueId>& values);

}  // namespace tandem
