#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Names of activations to swap to the host or to recompute. A name is "module op" ("block0 relu" is that
/// module's relu; "reduce" is an op outside all modules), a module (all its activations), or "*" (all). An
/// activation is a value that forward makes, or receives from another stage, and that backward reads. A
/// received value cannot be recomputed.
using Selection = std::vector<std::string>;
/// How an activation leaves device memory between forward and backward.
enum class Eviction : std::uint8_t { swap, recompute };

/// Makes backward repeat the views of forward that it reads, so that every activation is a buffer, not a
/// view. Run it before `select_activations`.
Graph with_backward_views(const Graph& graph);

/// Returns the values of a differentiated graph that a selection names. Throws Error listing the activations
/// if an entry names none. If an entry names activations of `before_recomputes` alone, these are recomputed
/// already: Eviction::swap throws Error, Eviction::recompute does nothing.
std::vector<ValueId> select_activations(const Graph& graph, const Selection& selection, Eviction how,
                                        const Graph* before_recomputes = nullptr);

/// Returns the readers of `v` that belong to backward. `readers` is Graph::readers().
std::vector<NodeId> backward_readers(const Graph& graph, const Readers& readers, ValueId v);

}  // namespace tandem::engine
