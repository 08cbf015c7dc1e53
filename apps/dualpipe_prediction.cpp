// Fig. 9: how far weights are from their predictions, and from stale weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include <tandem/nn/module.h>

#include "claims.h"
#include "dualpipe_training.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kStages = 4;
constexpr std::int64_t kSmallBatch = 32;

// RMSE over all stages, by iteration; NaN where it is not measured.
struct Errors {
  std::vector<double> predicted, stale;
};

// Stages have about equally many weights: 32 equal layers are cut into four.
std::map<int, Errors> errors_of(const LearningCurve& curve) {
  std::map<int, Errors> result;
  for (std::size_t i = 0; i < curve.prediction.size(); ++i)
    for (const PredictionError& e : curve.prediction[i]) {
      Errors& errors = result[e.updates];
      errors.predicted.resize(curve.prediction.size(), kNone);
      errors.stale.resize(curve.prediction.size(), kNone);
      const auto add = [&](double& to, double rmse) {
        to = std::sqrt((std::isnan(to) ? 0 : to * to) + rmse * rmse / kStages);
      };
      add(errors.predicted[i], e.predicted.at(0));
      add(errors.stale[i], e.stale.at(0));
    }
  return result;
}

double mean_of_measured(const std::vector<double>& values) {
  std::vector<double> measured;
  for (const double v : values)
    if (!std::isnan(v)) measured.push_back(v);
  return mean(measured);
}

double share_below(const Errors& e) {
  double below = 0, all = 0;
  for (std::size_t i = 0; i < e.stale.size(); ++i) {
    if (std::isnan(e.stale[i])) continue;
    below += e.predicted[i] < e.stale[i] ? 1 : 0;
    all += 1;
  }
  return below / all;
}

}  // namespace

void add_prediction(const DualPipeRun& run, Report& report) {
  const DualPipeNetwork& snn = run.networks.at(0);
  const std::int64_t batch = run.batch(kSmallBatch);
  DualPipeJob job{.network = snn.whole(), .schedule = "spectrain", .stages = kStages};
  job.lr = snn.lr;
  job.batch_size = batch;
  job.iterations = run.prediction_iterations;
  job.measure_prediction = {1, 2, 3};
  const std::map<int, Errors> all = errors_of(train(std::move(job), {read_images(run).train, {}}));
  Figure figure{
      "fig9",
      "Fig. 9: RMSE of predicted and of stale weights",
      fmt::format("The whole SNN on {} stages under SpecTrain, batches of {}, rate {}. s is the number of "
                  "updates between a prediction, or stale weights, and the weights that came.",
                  kStages, batch, snn.lr),
      Figure::Kind::lines,
      "updates",
      "iteration",
      "weights",
      "RMSE",
      {}};
  for (const auto& [updates, errors] : all) {
    Panel panel{
        fmt::format("s = {}", updates), {}, {{"predicted", errors.predicted}, {"stale", errors.stale}}};
    for (std::size_t i = 0; i < errors.stale.size(); ++i) panel.places.push_back(std::to_string(i + 1));
    figure.panels.push_back(std::move(panel));
    const double below = share_below(errors);
    report.claims.push_back(claim(fmt::format("Fig. 9: predicted RMSE below stale RMSE, s = {}", updates),
                                  "always", below >= 0.95, fmt::format("in {} of iterations", share(below)),
                                  ""));
  }
  report.figures.push_back(std::move(figure));
  if (const auto three = all.find(3); three != all.end())
    report.claims.push_back(share_claim(
        "Fig. 9: mean predicted RMSE over mean stale RMSE, s = 3", 0.015,
        mean_of_measured(three->second.predicted) / mean_of_measured(three->second.stale),
        "The paper's mean is that of spikes of its stale RMSE, 1,000 times the average; here there are none. "
        "What a prediction misses after three updates are the new gradients of these three."));
}

}  // namespace tandem::apps
