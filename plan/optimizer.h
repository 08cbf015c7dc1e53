#pragma once
#include <map>

#include <tandem/core/graph.h>
#include <tandem/ops/update.h>

namespace tandem {

/// Appends the optimiser: for every gradient an update of its slot and, with momentum, of the slot
/// "optimizer.momentum.<path>". The learning rate is the input "lr": a scalar, or (models,) where there are
/// several.
void add_updates(Graph& graph, const std::map<SlotId, ValueId>& grads, const SgdOptions& sgd, int models);

}  // namespace tandem
