#pragma once
#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Puts a send and a receive between a value and every other stage that uses it. Both ends work at the
/// value's lag.
Graph insert_transfers(const Graph& graph);

}  // namespace tandem::engine
