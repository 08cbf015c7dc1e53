#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Inserts a send and a receive between each value and every other device that uses it, for all stages
/// there. Both have the lag of the value.
Graph insert_transfers(const Graph& graph);

}  // namespace tandem::engine
