#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph.h>
#include <tandem/core/program.h>

namespace tandem {

/// Which activations to take off the device, or to compute again. A name is "module op" ("block0 relu": that
/// module's relu; "reduce": the model's own, outside all modules), or a module, meaning every activation in
/// it; "*" means all. An activation is what forward makes, or receives from another stage, and backward
/// reads; what is received cannot be recomputed.
using Selection = std::vector<std::string>;
enum class Takeoff : std::uint8_t { swap, recompute };

/// Views that forward makes and backward reads get made again by backward, so that what backward reads of
/// forward is always a buffer of its own. Comes before the selection.
Graph with_backward_views(const Graph& graph);

/// Values of a differentiated graph that a selection names. Throws Error when an entry names none, listing
/// those there are, or saying that it is recomputed already: `before_recomputes` is the graph that recomputes
/// were inserted into.
std::vector<ValueId> select_activations(const Graph& graph, const Selection& selection, Takeoff how,
                                        const Graph* before_recomputes = nullptr);

/// v → host copy h → new value v′ for backward's readers: a copy-out and a copy-in node for each.
Graph insert_swaps(const Graph& graph, const std::vector<ValueId>& values);

/// Backward's readers get the values computed again, just before they need them, from what is kept. Draws the
/// same random numbers; never repeats an update of statistics.
Graph insert_recomputes(const Graph& graph, const std::vector<ValueId>& values);

/// Bytes change at list positions only: the `release_distance`-th compute step after a copy-out waits for it,
/// which frees the source there; a copy-in waits for the compute step listed before it, so that it may use
/// what is free by then. The nearer the release, the less memory, and the likelier a wait.
Program with_copy_waits(Program schedule, int release_distance = 3);

}  // namespace tandem
