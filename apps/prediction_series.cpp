#include "prediction_series.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "claims.h"

namespace tandem::apps {
namespace {

std::vector<double> measured(std::vector<double> values) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  return values;
}

}  // namespace

double PredictionSeries::share_nearer() const {
  double nearer = 0;
  for (std::size_t i = 0; i < stale.size(); ++i) nearer += predicted[i] < stale[i] ? 1 : 0;  // not of NaN
  return nearer / static_cast<double>(measured(stale).size());
}

double PredictionSeries::ratio_of_means() const { return mean(measured(predicted)) / mean(measured(stale)); }

double PredictionSeries::largest_over_mean() const {
  const std::vector<double> values = measured(stale);
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : range_of(values).most / mean(values);
}

PredictionSeries prediction_series(const std::vector<std::vector<PredictionError>>& errors, int updates,
                                   const std::vector<double>& weights) {
  PredictionSeries series;
  for (const std::vector<PredictionError>& of_stages : errors) {
    double predicted = 0, stale = 0, all = 0;  // sums of squares, over so many weights
    for (const PredictionError& e : of_stages) {
      if (e.updates != updates) continue;
      const double count = weights.at(static_cast<std::size_t>(e.stage));
      predicted += count * e.predicted.at(0) * e.predicted.at(0);
      stale += count * e.stale.at(0) * e.stale.at(0);
      all += count;
    }
    series.predicted.push_back(std::sqrt(predicted / all));  // 0 / 0 = NaN: not measured
    series.stale.push_back(std::sqrt(stale / all));
  }
  return series;
}

}  // namespace tandem::apps
