#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/pipeline_schedule.h>
#include <tandem/plan/optimizer.h>

namespace tandem::engine {

/// SpecTrain (Chen, Yang, and Cheng, 2018, Eq. 4): where the schedule says so, F and B compute with predicted
/// weights instead of the weights that they read. A prediction continues for s updates what the optimizer did
/// last: along the momentum of SGD, or along Adam's direction and the weight decay of AdamW. It is multiplied
/// by the sum of the learning rates of exactly these s updates. Predictions are scratch, made once per batch
/// before their first use; F and B share one if they predict the same. What is computed from weights alone
/// follows; running statistics have no prediction. It comes after `apply_timing`. Throws Error if the
/// optimizer keeps no momentum.
Graph predict_weights(Graph graph, const PipelineSchedule& schedule, const Optimizer& optimizer,
                      const std::vector<ParameterGroup>& groups, int models);

}  // namespace tandem::engine
