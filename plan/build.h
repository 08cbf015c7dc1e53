#pragma once
#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/program.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// From a forward graph, traced for one replica's micro-batch, to the global Program of a training step (or
/// of an evaluation): which passes, in which order. Verified unless the strategy says otherwise.
///
/// The Program asks the host for the graph's inputs and, when training, for "lr" (one scalar a model); it
/// delivers the graph's results by batch: means over the global batch, or sums where they are integers.
/// Throws Error for what the strategy cannot do, naming the decision and what would work.
Program build(const Graph& forward, const Strategy& strategy);

/// The graph that `build` lowers: after all passes, with complete tags.
Graph planned_graph(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
