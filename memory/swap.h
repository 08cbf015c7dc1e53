#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Inserts a copy-out and a copy-in node for each value: v → host copy h → new value v′ for backward.
Graph insert_swaps(Graph graph, const std::vector<ValueId>& values);

/// Adds waits that tie each copy to a list position. The `release_distance`-th compute instruction after a
/// copy-out waits for it, which frees the source there. A copy-in waits for the compute instruction listed
/// before it, so that it can use memory that is free by then. A smaller distance needs less memory, but makes
/// waits likelier.
Program with_copy_waits(Program program, int release_distance = 3);

}  // namespace tandem::engine
