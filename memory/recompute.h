#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Makes backward compute `values` again from kept ones, just before it reads them. Each must be read by
/// backward, or by the node that makes another of them. A repeated node draws the same random numbers;
/// updates of statistics are never repeated.
Graph insert_recomputes(Graph graph, const std::vector<ValueId>& values);

/// Returns large activations that backward can recompute in about the time of reading them from memory, for
/// `insert_recomputes`: cheap expressions of kept values, such as norm and relu of a convolution's output, or
/// relu of a convolution of three channels, layer and group norms, and the values in between; also functions
/// such as gelu of a product that takes much longer than they do. If forward reads older weights than the
/// newest, it returns only those whose backward has forward's lag, because for others weights would have to
/// be kept. Run it after pointwise ops are fused.
std::vector<ValueId> cheap_activations(const Graph& graph);

}  // namespace tandem::engine
