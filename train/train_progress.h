#pragma once
#include <cstdint>
#include <vector>

namespace tandem {

/// Sums of an epoch's losses so far, per model. A short batch counts as its fraction of a full one.
struct LossSums {
  std::vector<double> batches, sum;
  std::int64_t not_finite = 0;  ///< number of these losses, of all models over the run; no sum includes them

  void add(const std::vector<double>& loss, double part);
  /// Begins another epoch.
  void clear();
  /// Returns NaN for a model without losses.
  std::vector<double> mean() const;
};

/// The progress of a run between two batches. With the Session's state it is all that a resume needs.
struct TrainProgress {
  std::int64_t batch = 0;  ///< the next one to train
  LossSums losses;         ///< of the previous batch's epoch
  double best_accuracy = -1;
  std::int64_t epochs_since_best = 0;
  std::int64_t rollbacks = 0;  ///< so far in the run (OnNonFinite::rollback)
};

}  // namespace tandem
