// Accuracy by learning rate. Eq. 2 of the paper leaves open what SGD does with its momentum
// (docs/pipelines.md), and which rates are stable depends on it.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"
#include "dualpipe_schemes.h"
#include "dualpipe_training.h"
#include "log.h"

namespace tandem::apps {
namespace {

constexpr int kStages = 4;
constexpr double kMomentumGain = 10;  // momentum at η equals ema at η/(1 − 0.9)

// A curve of the figure: a scheme of the paper, or one in which B uses the weights of its F.
struct Curve {
  std::size_t scheme;  // place in kDualPipeSchemes
  bool stashes_forward = false;
  std::string title() const {
    return std::string(kDualPipeSchemes[scheme].title) + (stashes_forward ? ", B with F's weights" : "");
  }
};
// Behind a scheme is the curve in which it stashes.
constexpr std::array kCurves{Curve{kData},      Curve{kVanilla},   Curve{kVanilla, true},
                             Curve{kPipeDream}, Curve{kSpecTrain}, Curve{kSpecTrain, true}};
constexpr std::size_t kDataCurve = 0;

// The mean over the seeds of the best validation accuracy, in %.
double accuracy_of(const Curve& curve, const DualPipeRun& run, const DualPipeNetwork& network, SgdRule rule,
                   double lr, const DualPipeSamples& samples) {
  const DualPipeScheme& scheme = kDualPipeSchemes[curve.scheme];
  std::vector<double> best;
  for (int seed = 1; seed <= run.seeds; ++seed)
    best.push_back(best_accuracy(train({.network = run.trained(network),
                                        .schedule = scheme.schedule,
                                        .stashes_forward = curve.stashes_forward,
                                        .stages = scheme.stages(kStages),
                                        .lr = lr,
                                        .rule = rule,
                                        .batch_size = run.batch(network.small_batch),
                                        .iterations = run.iterations,
                                        .seed = static_cast<std::uint64_t>(seed)},
                                       samples)));
  return 100 * mean(best);
}

Panel panel_of(const std::string& name, const DualPipeRun& run, const DualPipeNetwork& network,
               const DualPipeSamples& samples) {
  const SgdRule rule = sgd_rule(name);
  Panel panel{run.networks.size() > 1 ? fmt::format("{}, {}", network.title, name) : name, {}, {}};
  for (const Curve& curve : kCurves) panel.series.push_back({curve.title(), {}});
  for (const double factor : run.rates) {
    const double rate = run.rate(network) * factor, lr = rule == SgdRule::ema ? rate * kMomentumGain : rate;
    panel.places.push_back(fmt::format("{:g}", lr));
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < kCurves.size(); ++i) {
      panel.series[i].values.push_back(accuracy_of(kCurves[i], run, network, rule, lr, samples));
      texts.push_back(fmt::format("{} {:.1f}", panel.series[i].name, panel.series[i].values.back()));
    }
    log_info(fmt::format("{}, rate {:g}, accuracy in %: {}", panel.name, lr, fmt::join(texts, "; ")));
  }
  return panel;
}

// ---- what it says about Table 1 --------------------------------------------------------------------

// The accuracies of a network in %, by curve and rate.
struct TriedNetwork {
  std::string title;
  std::vector<std::vector<double>> accuracies;
  double best(std::size_t curve) const { return std::ranges::max(accuracies[curve]); }
};

// The points of a curve over Data P., each at its own best rate.
struct Points {
  double mean = 0;
  std::string by_network;
};
Points points_of(const std::vector<TriedNetwork>& all, std::size_t curve) {
  std::vector<double> points;
  std::vector<std::string> texts;
  for (const TriedNetwork& network : all) {
    points.push_back(network.best(curve) - network.best(kDataCurve));
    texts.push_back(fmt::format("{} {:+.1f}", network.title, points.back()));
  }
  return {mean(points), fmt::format("{}", fmt::join(texts, ", "))};
}

void add_best_rate_claims(const std::vector<TriedNetwork>& all, Report& report) {
  for (std::size_t i = 0; i < kCurves.size(); ++i) {
    if (i == kDataCurve || kCurves[i].stashes_forward) continue;
    const DualPipeScheme& scheme = kDualPipeSchemes[kCurves[i].scheme];
    const Points points = points_of(all, i);
    std::string why = fmt::format("By network: {}.", points.by_network);
    if (i + 1 < kCurves.size() && kCurves[i + 1].stashes_forward) {
      const Points stashed = points_of(all, i + 1);
      why += fmt::format(" If B uses the weights of its F, {:+.2f} points: {}.", stashed.mean,
                         stashed.by_network);
    }
    const Verdict verdict = compared({scheme.paper_points, scheme.paper_points}, {points.mean, points.mean});
    report.claims.push_back(
        {fmt::format("Table 1, each scheme at its best rate: accuracy, {} over Data P., mean", scheme.title),
         fmt::format("{:+.2f} points", scheme.paper_points), fmt::format("{:+.2f} points", points.mean),
         verdict, verdict == Verdict::agrees ? "" : why});
  }
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
          "Best validation accuracy of {} in {} iterations, mean of {}, with momentum 0.9; pipelines have {} "
          "stages. With ema the rates are ten times those of momentum, which makes the two equal. B with F's "
          "weights: the backward of a batch uses the weights that its forward used, also if they were predicted.",
          fmt::join(titles, ", "), run.iterations, counted(run.seeds, "seed"), kStages),
      Figure::Kind::lines,
      "rule",
      "learning rate",
      "scheme",
      "validation accuracy in %",
      {}};
  std::vector<TriedNetwork> tried;  // with the paper's optimizer
  for (const DualPipeNetwork& network : run.networks)
    for (const std::string& rule : run.sgd_rules) {
      const Panel& panel = figure.panels.emplace_back(panel_of(rule, run, network, data.of(network)));
      if (sgd_rule(rule) != SgdRule::momentum) continue;
      TriedNetwork& t = tried.emplace_back(TriedNetwork{network.title, {}});
      for (const Series& series : panel.series) t.accuracies.push_back(series.values);
    }
  report.figures.push_back(std::move(figure));
  if (!tried.empty()) add_best_rate_claims(tried, report);
}

}  // namespace tandem::apps
