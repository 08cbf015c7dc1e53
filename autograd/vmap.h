#pragma once
#include <cstdint>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// N models in one graph: every state and every per-model input gets a leading axis of `models`, and
/// every node that depends on one of them is replaced by its vmap rule. Nodes that depend on
/// shared data alone stay single.
Graph vmap(const Graph& graph, std::int64_t models);

}  // namespace tandem::engine
