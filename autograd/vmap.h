#pragma once
#include <cstdint>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Returns a graph that computes `models` models at once. Every state and every per-model input gets a
/// leading axis of extent `models`, and every node that depends on one of them is replaced by its vmap rule.
/// A node that depends only on shared data is kept once.
Graph vmap(const Graph& graph, std::int64_t models);

}  // namespace tandem::engine
