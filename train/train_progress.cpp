#include <tandem/train/train_progress.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem {

void LossSums::add(const std::vector<double>& loss, double part) {
  batches.resize(loss.size());
  sum.resize(loss.size());
  for (std::size_t m = 0; m < loss.size(); ++m) {
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

}  // namespace tandem
