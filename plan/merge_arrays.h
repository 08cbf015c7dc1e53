#pragma once
#include <span>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Puts the training steps of arrays of models, of these sizes, into one graph. Each node gets the number of
/// its array. States have a leading axis of all models, of which each array reads and assigns its part, so
/// that they are the same for any partition. Inputs per model, and results, say whose they are; each array
/// has its own copy of the other inputs.
Graph merge_arrays(const std::vector<Graph>& arrays, std::span<const int> sizes);

}  // namespace tandem::engine
