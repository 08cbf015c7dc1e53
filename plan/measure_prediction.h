#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/runtime/host.h>
#include <tandem/pipeline/pipeline_schedule.h>
#include <tandem/plan/optimizer.h>

namespace tandem {

/// How far the weights of a pipeline stage are from what was predicted some updates before, and from what
/// they were then: the root of the mean squared difference over all trained parameters of the stage.
struct PredictionError {
  int stage = 0, updates = 0;
  std::vector<double> predicted, stale;  ///< per model
};

}  // namespace tandem

namespace tandem::engine {

/// Adds nodes that compare each stage's weights after the update of batch b with those that batch b − s
/// assigned, and with the prediction from these (WeightPredictor), for each s in `updates`. The numbers are
/// the result kPredictionResult on the last stage: f64 (stages, updates, 2), predicted before stale, in one
/// axis, with a leading model axis if there are several models; 0 for a stage without weights. In the first
/// batches of a run, fewer updates than s are compared, from the run's start on. Without `updates`, returns
/// the graph as it is. It comes after `apply_timing`: the weights and the optimizer's state keep s more
/// versions, and the result comes a unit after the last update, so that no stage waits for it. Throws Error
/// if the optimizer keeps no momentum.
Graph measure_prediction(Graph graph, const std::vector<int>& updates, const PipelineSchedule& schedule,
                         const Optimizer& optimizer, const std::vector<ParameterGroup>& groups, int models);

/// Returns the numbers of the result kPredictionResult, without those that compare fewer updates: the first s
/// batches of a run have none of s.
std::vector<PredictionError> prediction_errors(const HostResult& result, const std::vector<int>& updates,
                                               int models);

}  // namespace tandem::engine
