#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/core/graph.h>

namespace tandem {

/// Appends the all-reduces of a data-parallel step: gradients group by group, each group's tensors placed
/// side by side, the rest tensor by tensor in the order in which backward makes them; and the results.
/// `grads` and `results` then name the sums over the replicas. Nothing happens with one replica.
/// Throws Error for a group that names a parameter unknown, repeated, or of another stage or dtype.
void add_all_reduces(Graph& graph, int replicas, const std::vector<std::vector<std::string>>& groups,
                     std::map<SlotId, ValueId>& grads, std::map<std::string, ValueId>& results);

}  // namespace tandem
