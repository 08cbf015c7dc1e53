#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

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
/// those there are. What recomputes already, in `g` as against `before_recomputes`, is an Error to swap and
/// nothing to recompute.
std::vector<ValueId> select_activations(const Graph& graph, const Selection& selection, Takeoff how,
                                        const Graph* before_recomputes = nullptr);

/// Those of a value's `readers` (Graph::readers) that belong to backward.
std::vector<NodeId> backward_readers(const Graph& graph, const std::vector<std::vector<NodeId>>& readers,
                                     ValueId v);

}  // namespace tandem::engine
