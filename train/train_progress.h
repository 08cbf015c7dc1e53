#pragma once
#include <cstdint>
#include <vector>

namespace tandem {

/// Sums of an epoch's losses so far, per model. A short batch counts as its fraction of a full one.
struct LossSums {
  std::vector<double> batches, sum;
  std::int64_t not_finite = 0;  ///< number of these losses, of all models over the run; no sum includes them

  /// Models of which `counts` is false are left out; empty: none.
  void add(const std::vector<double>& loss, double part, const std::vector<char>& counts = {});
  /// Begins another epoch.
  void clear();
  /// Returns NaN for a model without losses.
  std::vector<double> mean() const;
};

/// A model that no longer trains, while others go on.
struct StoppedModel {
  int model = 0;
  std::int64_t batch = 0;  ///< the batch of the loss that is not finite; of a pruned model, the next one
  bool diverged = false;   ///< else it was pruned
};

/// The progress of a run between two batches. With the Session's state it is all that a resume needs.
struct TrainProgress {
  std::int64_t batch = 0;  ///< the next one to train
  LossSums losses;         ///< of the previous batch's epoch
  double best_accuracy = -1;
  std::int64_t epochs_since_best = 0;
  std::int64_t rollbacks = 0;           ///< so far in the run (OnNonFinite::rollback)
  std::vector<StoppedModel> stopped{};  ///< in the order of models
  /// Per model, of the epochs that it trained: the sum of its accuracies, the best, and how many. Empty until
  /// the first.
  struct Accuracies {
    double sum = 0, best = 0;
    std::int64_t epochs = 0;
    double last = 0, loss = 0;  ///< of the last of these epochs
  };
  std::vector<Accuracies> accuracies{};
};

/// The median rule (Golovin et al., 2017, "Google Vizier"): returns the models of `candidates` whose best
/// accuracy is below the median of the other models' mean accuracies. Never all of them.
std::vector<int> below_median(const std::vector<TrainProgress::Accuracies>& models,
                              const std::vector<int>& candidates);

}  // namespace tandem
