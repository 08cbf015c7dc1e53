// Accuracy by learning rate. Eq. 2 of the paper leaves open what SGD does with its momentum
// (docs/pipelines.md), and which rates are stable depends on it.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"
#include "dualpipe_schemes.h"
#include "dualpipe_training.h"
#include "log.h"

namespace tandem::apps {
namespace {

constexpr int kStages = 4;
constexpr std::array kFactors{10.0, 4.0, 2.0, 1.0, 0.4, 0.2};  // of the network's own rate
constexpr double kMomentumGain = 10;                           // momentum at η equals ema at η/(1 − 0.9)

constexpr std::array kSchemes{kDualPipeSchemes[kData], kDualPipeSchemes[kVanilla],
                              kDualPipeSchemes[kSpecTrain]};

Panel panel_of(const std::string& name, const DualPipeRun& run, const DualPipeNetwork& network,
               const DualPipeSamples& samples) {
  const SgdRule rule = sgd_rule(name);
  Panel panel{run.networks.size() > 1 ? fmt::format("{}, {}", network.title, name) : name, {}, {}};
  for (const DualPipeScheme& scheme : kSchemes) panel.series.push_back({scheme.title, {}});
  for (const double factor : kFactors) {
    const double rate = run.rate(network) * factor, lr = rule == SgdRule::ema ? rate * kMomentumGain : rate;
    panel.places.push_back(fmt::format("{:g}", lr));
    for (std::size_t i = 0; i < kSchemes.size(); ++i) {
      std::vector<double> best;
      for (int seed = 1; seed <= run.seeds; ++seed)
        best.push_back(best_accuracy(train({.network = run.trained(network),
                                            .schedule = kSchemes[i].schedule,
                                            .stages = kSchemes[i].stages(kStages),
                                            .lr = lr,
                                            .rule = rule,
                                            .batch_size = run.batch(network.small_batch),
                                            .iterations = run.iterations,
                                            .seed = static_cast<std::uint64_t>(seed)},
                                           samples)));
      panel.series[i].values.push_back(100 * mean(best));
    }
    log_info(fmt::format("{}, rate {:g}: {:.1f}, {:.1f}, {:.1f} %", panel.name, lr,
                         panel.series[0].values.back(), panel.series[1].values.back(),
                         panel.series[2].values.back()));
  }
  return panel;
}

}  // namespace

void add_rates(const DualPipeRun& run, Report& report) {
  const DualPipeData data = read_data(run);
  std::vector<std::string> titles;
  for (const DualPipeNetwork& network : run.networks)
    titles.push_back(fmt::format("{} (batches of {})", network.title, run.batch(network.small_batch)));
  Figure figure{
      "rates",
      "Accuracy by learning rate",
      fmt::format(
          "Best validation accuracy of {} in {} iterations, mean of {}, with momentum 0.9. With ema the rates "
          "are ten times those of momentum, which makes the two equal.",
          fmt::join(titles, ", "), run.iterations, counted(run.seeds, "seed")),
      Figure::Kind::lines,
      "rule",
      "learning rate",
      "scheme",
      "validation accuracy in %",
      {}};
  for (const DualPipeNetwork& network : run.networks)
    for (const char* rule : kSgdRules)
      figure.panels.push_back(panel_of(rule, run, network, data.of(network)));
  report.figures.push_back(std::move(figure));
}

}  // namespace tandem::apps
