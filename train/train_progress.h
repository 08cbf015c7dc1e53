#pragma once
#include <cstdint>
#include <vector>

namespace tandem {

/// The losses of an epoch so far, per model; a short batch counts as its part of a whole one.
struct LossSums {
  std::vector<double> batches, sum;
  std::int64_t not_finite = 0;  ///< of all models, over the run: they are in no sum

  void add(const std::vector<double>& loss, double part);
  /// Begins another epoch.
  void clear();
  /// NaN where there are none.
  std::vector<double> mean() const;
};

/// How far a run is, between two batches: with the Session's state, all that is needed to go on with it.
struct TrainProgress {
  std::int64_t batch = 0;  ///< the first that is not trained on yet
  LossSums losses;         ///< of the epoch of the batch before
  double best_accuracy = -1;
  std::int64_t epochs_since_best = 0;
  std::int64_t rollbacks = 0;  ///< of the run, to leave batches out that are not finite
};

}  // namespace tandem
