#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/plan/measure_prediction.h>

namespace tandem::apps {

/// The means of all errors that a run measured, over batches, stages, and models.
class PredictionMeans {
 public:
  /// Adds the errors of a batch.
  void add(const std::vector<PredictionError>& errors);
  /// Returns a line such as "predicted weights are off by 0.45 (1 update), 0.52 (2 updates) of what old ones
  /// are", without those for which the weights did not move or are no longer finite; empty if there are none.
  std::string text() const;

 private:
  struct Sums {
    double predicted = 0, stale = 0;
  };
  std::map<int, Sums> sums_;  // by updates
};

}  // namespace tandem::apps
