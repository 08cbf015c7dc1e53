#pragma once
#include "training_run.h"

namespace tandem::testing {

/// What a schedule means: an eager loop on one device, batch after batch, that keeps every version of every
/// weight and picks those which the stage that has the weight would hold, by the clock of the schedule's
/// paper. It knows nothing of Programs, passes, lags or slots. Of the strategy it takes the schedule, the
/// number of stages and their cuts (modules with parameters, to be given), micro-batches, SGD and threads.
Outcome lagged_loop(const Job& job, const Strategy& strategy);

/// To be said in a model's `forward` of what was computed from weights alone: where backward uses other
/// weights than forward did, it uses what those give. Returns its argument.
Tensor of_weights(Tensor made);

}  // namespace tandem::testing
