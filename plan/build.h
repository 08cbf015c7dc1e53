#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/program.h>
#include <tandem/dist/all_reduce_costs.h>
#include <tandem/plan/memory_budget.h>
#include <tandem/plan/sparse_updates.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Builds the global Program of a training step (or an evaluation) from a forward graph that was traced for
/// one replica's micro-batch. Chooses the passes and their order. Verifies the Program unless
/// Strategy::verify is false.
///
/// The Program takes from the host the graph's inputs and, in training, "lr" (one scalar per model). It
/// delivers the graph's results for each batch: means over the global batch, or sums if they are integers.
/// Throws Error if the strategy is impossible, naming the decision and what would work.
Program build(const Graph& forward, const Strategy& strategy);

/// Returns the graph that `build` lowers: after all passes, with complete tags.
Graph planned_graph(const Graph& forward, const Strategy& strategy);

/// Returns the memory plans of `build`, by device; nothing if it needs none.
std::vector<DevicePlan> memory_plans(const Graph& forward, const Strategy& strategy);

/// Returns how the step updates its tables, in the order of the states. Of several arrays of models, the first
/// that updates a table densely counts.
std::vector<TableUpdate> table_updates(const Graph& forward, const Strategy& strategy);

/// Returns the gradients that the step reduces, by stage, in the order in which backward makes them
/// (dist/data_parallel.h). Tables with sparse updates have none.
std::vector<std::vector<GradientLayer>> gradient_layers(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
