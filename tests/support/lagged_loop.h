#pragma once
#include <string>

#include "training_run.h"

namespace tandem::testing {

/// Defines what a schedule computes: an eager loop on one device, batch after batch, keeps every version of
/// every weight. For each use it picks the version that the weight's stage would hold, by the clock of the
/// schedule's paper; of a schedule of one's own, by the ages of its weight rules. The loop knows nothing of
/// Programs, passes, lags, or slots. From the strategy it takes the schedule, the number of stages and their
/// cuts (modules with parameters, which must be given), micro-batches, SGD, and threads.
Outcome lagged_loop(const Job& job, const Strategy& strategy);

/// A model's `forward` passes each value that depends only on weights through this function, which returns
/// its argument. If backward uses other weights than forward, it uses the value that those weights give.
Tensor of_weights(Tensor made);

/// A model's `forward` passes each value that depends only on weights through this function before a later
/// stage than the weights' uses it. There, backward uses what forward used. Returns its argument or a copy.
Tensor for_later_stages(const Tensor& value);

/// A model's `forward` passes a weight through this function for each module but its own that uses it. On a
/// later stage than the weight's, backward uses what forward used, and the gradient of each stage is summed
/// over the micro-batches before the stages' sums are added. Returns its argument or a copy.
Tensor for_module(const Tensor& weight, const std::string& module);

}  // namespace tandem::testing
