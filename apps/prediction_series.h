#pragma once
#include <vector>

#include <tandem/plan/measure_prediction.h>

namespace tandem::apps {

/// How far predicted and stale weights are from the actual ones, over all stages of a pipeline, by iteration:
/// the root of the mean squared difference over all trained weights. NaN where it is not measured.
struct PredictionSeries {
  std::vector<double> predicted, stale;

  /// Returns in which share of the measured iterations predicted weights are nearer than stale ones; NaN if
  /// there is none.
  double share_nearer() const;
  /// Returns the mean of the predicted errors over the mean of the stale ones.
  double ratio_of_means() const;
  /// Returns the largest of the stale errors over their mean.
  double largest_over_mean() const;
};

/// Returns the series of weights `updates` updates apart. `errors`: by iteration and stage, of one model.
/// `weights`: the number of trained weights of each stage.
PredictionSeries prediction_series(const std::vector<std::vector<PredictionError>>& errors, int updates,
                                   const std::vector<double>& weights);

}  // namespace tandem::apps
