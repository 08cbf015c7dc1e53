#pragma once
#include "training_run.h"

namespace tandem::testing {

/// What a planned graph means, by definition: batch after batch on one device, node after node, keeping every
/// version of every state; read(slot, age) of batch b is what batch b − age assigned. No lanes, lags,
/// slots or placement. Replicas must be 1.
Outcome interpret(const Job& job, const Strategy& strategy);

}  // namespace tandem::testing
