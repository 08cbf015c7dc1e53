// Fig. 9: how far weights are from their predictions, and from stale weights.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"
#include "dualpipe_schemes.h"
#include "dualpipe_training.h"
#include "log.h"
#include "prediction_series.h"

namespace tandem::apps {
namespace {

constexpr int kStages = 4;
constexpr std::int64_t kSmallBatch = 32;
constexpr double kAlmostAlways = 0.95;
const std::vector<int> kUpdates{1, 2, 3};

// What SpecTrain measures under a rule of SGD: a series for each of kUpdates.
std::vector<PredictionSeries> measured(const DualPipeRun& run, const DualPipeNetwork& network,
                                       const DualPipeSamples& images, SgdRule rule) {
  DualPipeJob job{.network = network.whole(),
                  .schedule = kDualPipeSchemes[kSpecTrain].schedule,
                  .stages = kStages,
                  .lr = network.lr,
                  .rule = rule,
                  .batch_size = run.batch(kSmallBatch),
                  .iterations = run.prediction_iterations,
                  .measure_prediction = kUpdates};
  const LearningCurve curve = train(std::move(job), {images.train, {}});
  std::vector<PredictionSeries> result;
  for (const int updates : kUpdates)
    result.push_back(prediction_series(curve.prediction, updates, curve.stage_weights));
  return result;
}

Panel panel_of(const std::string& rule, int updates, const PredictionSeries& series) {
  Panel panel{fmt::format("{}, s = {}", rule, updates),
              {},
              {{"predicted", series.predicted}, {"stale", series.stale}}};
  for (std::size_t i = 0; i < series.stale.size(); ++i) panel.places.push_back(std::to_string(i + 1));
  return panel;
}

Claim nearer_claim(const std::string& rule, const std::vector<PredictionSeries>& all) {
  std::vector<std::string> shares, ratios;
  bool holds = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    holds = holds && all[i].share_nearer() >= kAlmostAlways;
    shares.push_back(fmt::format("s = {}: {}", kUpdates[i], share(all[i].share_nearer())));
    ratios.push_back(fmt::format("{:.3g}", all[i].ratio_of_means()));
  }
  const std::string asked = fmt::format("Fig. 9, {}: predicted RMSE below stale RMSE", rule);
  if (std::ranges::any_of(all, [](const PredictionSeries& s) { return std::isnan(s.share_nearer()); }))
    return {asked, "always", "", Verdict::unexamined, "The training diverged before all s were measured."};
  return claim(
      asked, "always", holds, fmt::format("{} of iterations", fmt::join(shares, ", ")),
      fmt::format("A prediction is nearer than stale weights exactly if what the updates did, projected on "
                  "what it predicts, is more than half as long. Mean predicted over mean stale RMSE: {}.",
                  fmt::join(ratios, ", ")));
}

Claim ratio_claim_of(const std::string& rule, int updates, const PredictionSeries& series) {
  return share_claim(
      fmt::format("Fig. 9, {}: mean predicted RMSE over mean stale RMSE, s = {}", rule, updates), 0.015,
      series.ratio_of_means(),
      fmt::format(
          "The paper's mean is that of spikes of its stale RMSE, 1,000 times the average; here the largest is "
          "{:.1f} times the mean. A prediction misses by how much the momentum changes during the updates.",
          series.largest_over_mean()));
}

}  // namespace

void add_prediction(const DualPipeRun& run, Report& report) {
  const DualPipeNetwork& snn = run.networks.at(0);
  const DualPipeData data = read_data(run);
  Figure figure{
      "fig9",
      "Fig. 9: RMSE of predicted and of stale weights",
      fmt::format(
          "The whole {} on {} stages under SpecTrain, batches of {}, rate {}, by rule of SGD: momentum is "
          "TensorFlow's, ema updates with v of the paper's Eq. 1, raw+ema updates with the gradient, as its Eq. 2 "
          "prints, and predicts with v. s is the number of updates between a prediction, or stale weights, and the weights that came.",
          snn.title, kStages, run.batch(kSmallBatch), snn.lr),
      Figure::Kind::lines,
      "rule and updates",
      "iteration",
      "weights",
      "RMSE",
      {}};
  for (const std::string& rule : run.sgd_rules) {
    const std::vector<PredictionSeries> all = measured(run, snn, data.images, sgd_rule(rule));
    for (std::size_t i = 0; i < all.size(); ++i) figure.panels.push_back(panel_of(rule, kUpdates[i], all[i]));
    report.claims.push_back(nearer_claim(rule, all));
    log_info(fmt::format("{}: {}", report.claims.back().asked, report.claims.back().ours));
    if (sgd_rule(rule) == SgdRule::momentum && !std::isnan(all.back().share_nearer()))  // the paper's
      report.claims.push_back(ratio_claim_of(rule, kUpdates.back(), all.back()));
  }
  report.figures.push_back(std::move(figure));
}

}  // namespace tandem::apps
