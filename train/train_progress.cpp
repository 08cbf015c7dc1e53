#include <tandem/train/train_progress.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {

void LossSums::add(const std::vector<double>& loss, double part, const std::vector<char>& counts) {
  batches.resize(loss.size());
  sum.resize(loss.size());
  for (std::size_t m = 0; m < loss.size(); ++m) {
    if (!counts.empty() && !counts[m]) continue;
    if (!std::isfinite(loss[m])) {
      ++not_finite;
      continue;
    }
    batches[m] += part;
    sum[m] += part * loss[m];
  }
}

void LossSums::clear() {
  std::ranges::fill(batches, 0);
  std::ranges::fill(sum, 0);
}

std::vector<double> LossSums::mean() const {
  std::vector<double> result;
  for (std::size_t m = 0; m < sum.size(); ++m)
    result.push_back(batches[m] > 0 ? sum[m] / batches[m] : std::numeric_limits<double>::quiet_NaN());
  return result;
}

std::vector<int> below_median(const std::vector<TrainProgress::Accuracies>& models,
                              const std::vector<int>& candidates) {
  std::vector<int> below;
  for (const int m : candidates) {
    if (models[static_cast<std::size_t>(m)].epochs == 0) continue;
    std::vector<double> means;
    for (std::size_t other = 0; other < models.size(); ++other)
      if (static_cast<int>(other) != m && models[other].epochs > 0)
        means.push_back(models[other].sum / static_cast<double>(models[other].epochs));
    if (means.empty()) continue;
    std::ranges::sort(means);
    const std::size_t half = means.size() / 2;
    const double median = means.size() % 2 == 1 ? means[half] : (means[half - 1] + means[half]) / 2;
    if (models[static_cast<std::size_t>(m)].best < median) below.push_back(m);
  }
  return below.size() < candidates.size() ? below : std::vector<int>();
}

}  // namespace tandem
