#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Backward's readers get the values computed again, just before they need them, from what is kept. Each
/// value is read by backward, or by what makes another one of them. Draws the same random numbers; never
/// repeats an update of statistics.
Graph insert_recomputes(const Graph& graph, const std::vector<ValueId>& values);

/// Large activations that backward can have again for about the price of reading them from memory: cheap
/// expressions of what it keeps anyway, such as norm and relu of a convolution's output, or relu of a
/// convolution of three channels; with what lies between. Not under a lag, where weights would have to be
/// kept for it. For `insert_recomputes`; comes after pointwise ops are fused.
std::vector<ValueId> cheap_activations(const Graph& graph);

}  // namespace tandem::engine
