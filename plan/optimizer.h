#pragma once
#include <tandem/core/step_graph.h>
#include <tandem/ops/update.h>

namespace tandem {

/// Appends the optimiser: for every gradient an update of its slot and, with momentum, of the slot
/// "optimizer.momentum.<path>". The learning rate is the input "lr": a scalar, or (models,) where there are
/// several.
StepGraph add_updates(StepGraph step, const SgdOptions& sgd, int models);

}  // namespace tandem
