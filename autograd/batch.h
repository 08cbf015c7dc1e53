#pragma once
#include <cstdint>

#include <tandem/core/graph.h>

namespace tandem {

/// N models in one graph: every state slot and every per-model input gets a leading axis of `models`, and
/// every node that depends on one of them is replaced by its batching rule. Nodes that depend on
/// shared data alone stay single.
Graph batch(const Graph& graph, std::int64_t models);

}  // namespace tandem
