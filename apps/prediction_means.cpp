#include "prediction_means.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::apps {

void PredictionMeans::add(const std::vector<PredictionError>& errors) {
  for (const PredictionError& e : errors)
    for (std::size_t m = 0; m < e.predicted.size(); ++m) {
      Sums& sums = sums_[e.updates];
      sums.predicted += e.predicted[m], sums.stale += e.stale[m];
    }
}

std::string PredictionMeans::text() const {
  std::vector<std::string> parts;
  for (const auto& [updates, sums] : sums_)
    if (const double ratio = sums.predicted / sums.stale; std::isfinite(ratio))
      parts.push_back(fmt::format("{:.2f} ({})", ratio, counted(updates, "update")));
  if (parts.empty()) return "";
  return fmt::format("predicted weights are off by {} of what old ones are", fmt::join(parts, ", "));
}

}  // namespace tandem::apps
