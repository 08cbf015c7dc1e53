#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// v → host copy h → new value v′ for backward's readers: a copy-out and a copy-in node for each.
Graph insert_swaps(const Graph& graph, const std::vector<ValueId>& values);

/// Bytes change at list positions only: the `release_distance`-th compute instruction after a copy-out waits
/// for it, which frees the source there; a copy-in waits for the compute instruction listed before it, so
/// that it may use what is free by then. The nearer the release, the less memory, and the likelier a wait.
Program with_copy_waits(Program program, int release_distance = 3);

}  // namespace tandem::engine
