#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "claims.h"
#include "dualpipe_run.h"
#include "dualpipe_training.h"

namespace tandem::apps {

/// What a network learned under each scheme.
struct TrainedNetwork {
  const DualPipeNetwork* network = nullptr;
  std::int64_t batch_size = 0;
  std::vector<std::vector<LearningCurve>> curves;  ///< by scheme (kDualPipeSchemes) and seed
};

/// Returns a number of each seed, without those that have none (NaN).
template <class F> std::vector<double> by_seed(const std::vector<LearningCurve>& curves, F number) {
  std::vector<double> result;
  for (const LearningCurve& curve : curves)
    if (const double value = number(curve); !std::isnan(value)) result.push_back(value);
  return result;
}

/// Adds what Table 1 says, from the best validation accuracies.
void add_accuracy_claims(const DualPipeRun& run, const std::vector<TrainedNetwork>& all, Report& report);

/// Adds Fig. 13, and what it says: the time to the lowest of the schemes' best accuracies, with the periods
/// of Fig. 10's fitted profiles.
void add_time_to_accuracy(const std::vector<TrainedNetwork>& all, Report& report);

}  // namespace tandem::apps
