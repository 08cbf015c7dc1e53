// Figs. 5, 12, 13 and Table 1: what networks learn on pipelines.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dualpipe_learning.h"
#include "dualpipe_schemes.h"
#include "log.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kStages = 4;
constexpr std::size_t kSmoothed = 20, kDrawnEvery = 10;  // iterations of a curve of losses

TrainedNetwork train_all(const DualPipeRun& run, const DualPipeNetwork& network,
                         const DualPipeSamples& samples) {
  TrainedNetwork trained{&network, run.batch(network.small_batch), {}};
  for (const DualPipeScheme& scheme : kDualPipeSchemes) {
    auto& curves = trained.curves.emplace_back();
    for (int seed = 1; seed <= run.seeds; ++seed)
      curves.push_back(train({.network = run.trained(network),
                              .schedule = scheme.schedule,
                              .stages = scheme.stages(kStages),
                              .lr = run.rate(network),
                              .batch_size = trained.batch_size,
                              .iterations = run.iterations,
                              .seed = static_cast<std::uint64_t>(seed)},
                             samples));
    log_info(fmt::format("{}, {}: best validation accuracy {:.1f} %, {:.1f} ms per iteration", network.title,
                         scheme.title, 100 * mean(by_seed(curves, best_accuracy)),
                         mean(by_seed(curves, [](const LearningCurve& c) { return c.step_ms; }))));
  }
  return trained;
}

// ---- figures ---------------------------------------------------------------------------------------

// The values of one curve, by the number of iterations before them.
using Points = std::map<std::int64_t, double>;

Points smoothed_losses(const LearningCurve& curve) {
  Points points;
  double sum = 0;
  for (std::size_t i = 0; i < curve.loss.size(); ++i) {
    sum += curve.loss[i] - (i >= kSmoothed ? curve.loss[i - kSmoothed] : 0);
    if ((i + 1) % kDrawnEvery == 0)
      points[static_cast<std::int64_t>(i) + 1] = sum / static_cast<double>(std::min(i + 1, kSmoothed));
  }
  return points;
}

Points validation_losses(const LearningCurve& curve) {
  Points points;
  for (const Validation& v : curve.validations) points[v.iterations] = v.loss;
  return points;
}

Points accuracies(const LearningCurve& curve) {
  Points points;
  for (const Validation& v : curve.validations) points[v.iterations] = 100 * v.accuracy;
  return points;
}

// A panel per network, with the means over the seeds.
Figure curves_figure(const std::string& id, const std::string& title, const std::string& text,
                     const std::string& value_name, Points (*points)(const LearningCurve&),
                     const std::vector<TrainedNetwork>& all, const std::vector<std::size_t>& which) {
  Figure figure{id, title, text, Figure::Kind::lines, "network", "iteration", "scheme", value_name, {}};
  for (const TrainedNetwork& t : all) {
    std::set<std::int64_t> places;
    std::map<std::size_t, std::map<std::int64_t, std::vector<double>>> values;  // by scheme and place
    for (const std::size_t scheme : which)
      for (const LearningCurve& curve : t.curves[scheme])
        for (const auto& [place, value] : points(curve)) {
          places.insert(place);
          values[scheme][place].push_back(value);
        }
    Panel& panel = figure.panels.emplace_back(Panel{t.network->title, {}, {}});
    for (const std::int64_t place : places) panel.places.push_back(std::to_string(place));
    for (const std::size_t scheme : which) {
      Series& series = panel.series.emplace_back(Series{kDualPipeSchemes[scheme].title, {}});
      for (const std::int64_t place : places)
        series.values.push_back(values[scheme].contains(place) ? mean(values[scheme][place]) : kNone);
    }
  }
  return figure;
}

// A panel per network: the mean of a number over the seeds, its least and its most.
Figure table_figure(const std::string& id, const std::string& title, const std::string& value_name,
                    double (*number)(const LearningCurve&), const std::vector<TrainedNetwork>& all) {
  Figure figure{
      id,
      title,
      "Mean, least and most of the seeds. One that diverged before it was first validated counts as "
      "guessing, 10 %, and is left out where there is no loss of it.",
      Figure::Kind::bars,
      "network",
      "scheme",
      "of seeds",
      value_name,
      {}};
  for (const TrainedNetwork& t : all) {
    Panel& panel =
        figure.panels.emplace_back(Panel{t.network->title, {}, {{"mean", {}}, {"least", {}}, {"most", {}}}});
    for (std::size_t s = 0; s < kDualPipeSchemes.size(); ++s) {
      const std::vector<double> values = by_seed(t.curves[s], number);
      const Range range = values.empty() ? Range{kNone, kNone} : range_of(values);
      panel.places.push_back(kDualPipeSchemes[s].title);
      panel.series[0].values.push_back(mean(values));
      panel.series[1].values.push_back(range.least);
      panel.series[2].values.push_back(range.most);
    }
  }
  return figure;
}

double least_of(const Points& points) {
  double least = kNone;
  for (const auto& [place, value] : points) least = std::isnan(least) ? value : std::min(least, value);
  return least;
}

// Which trainings ended early.
std::string diverged(const std::vector<TrainedNetwork>& all) {
  std::vector<std::string> which;
  for (const TrainedNetwork& t : all)
    for (std::size_t s = 0; s < kDualPipeSchemes.size(); ++s)
      for (std::size_t seed = 0; seed < t.curves[s].size(); ++seed)
        if (const LearningCurve& curve = t.curves[s][seed]; curve.diverged)
          which.push_back(fmt::format("{} under {}, seed {}, after {}", t.network->title,
                                      kDualPipeSchemes[s].title, seed + 1,
                                      counted(curve.loss.size(), "iteration")));
  return which.empty() ? "No training diverged."
                       : fmt::format("Diverged, with no later points: {}.", fmt::join(which, "; "));
}

void add_curves(const DualPipeRun& run, const std::vector<TrainedNetwork>& all,
                std::vector<Figure>& figures) {
  std::vector<std::string> sizes;
  for (const TrainedNetwork& t : all)
    sizes.push_back(fmt::format(
        "{}: batch {}, rate {}{}", t.network->title, t.batch_size, run.rate(*t.network),
        run.rate(*t.network) == t.network->lr
            ? ""
            : fmt::format(" (the paper's, {}, teaches one device nothing in this size)", t.network->lr)));
  const std::string how = fmt::format(
      "{} iterations, mean of {}; {}. Data P. is one device with the same batches; the others run on {} stages, each with the cuts that are best for it by operations. "
      "Every {} iterations the network is validated. A pipeline is empty then, so its next batches meet weights that "
      "are less old than usual. {}",
      run.iterations, counted(run.seeds, "seed"), fmt::join(sizes, "; "), kStages, kValidateEvery,
      diverged(all));
  const std::vector<std::size_t> every{kData, kVanilla, kPipeDream, kSpecTrain};
  figures.push_back(curves_figure("fig5", "Fig. 5: validation accuracy without and with stale weights", how,
                                  "accuracy, %", accuracies, all, {kData, kVanilla}));
  figures.push_back(curves_figure("fig12", "Fig. 12: training loss",
                                  how + fmt::format(" Means over the last {} iterations.", kSmoothed), "loss",
                                  smoothed_losses, all, every));
  figures.push_back(curves_figure("fig12-validation", "Fig. 12: validation loss", how, "loss",
                                  validation_losses, all, every));
  figures.push_back(curves_figure("fig12-accuracy", "Fig. 12: validation accuracy", how, "accuracy, %",
                                  accuracies, all, every));
  figures.push_back(table_figure(
      "table1", "Table 1: highest validation accuracy", "accuracy, %",
      [](const LearningCurve& c) { return 100 * best_accuracy(c); }, all));
  figures.push_back(table_figure(
      "table1-training", fmt::format("Table 1: lowest training loss, as a mean of {} iterations", kSmoothed),
      "loss", [](const LearningCurve& c) { return least_of(smoothed_losses(c)); }, all));
  figures.push_back(table_figure(
      "table1-validation", "Table 1: lowest validation loss", "loss",
      [](const LearningCurve& c) { return least_of(validation_losses(c)); }, all));
}

// All losses and validations of all seeds.
void add_files(const std::vector<TrainedNetwork>& all, Report& report) {
  std::string losses = "network,scheme,seed,iteration,loss\n",
              validations = "network,scheme,seed,iteration,loss,accuracy\n";
  for (const TrainedNetwork& t : all)
    for (std::size_t s = 0; s < kDualPipeSchemes.size(); ++s)
      for (std::size_t seed = 0; seed < t.curves[s].size(); ++seed) {
        const std::string row = fmt::format("{},{},{}", t.network->name, kDualPipeSchemes[s].title, seed + 1);
        const LearningCurve& curve = t.curves[s][seed];
        for (std::size_t i = 0; i < curve.loss.size(); ++i)
          losses += fmt::format("{},{},{}\n", row, i + 1, curve.loss[i]);
        for (const Validation& v : curve.validations)
          validations += fmt::format("{},{},{},{}\n", row, v.iterations, v.loss, v.accuracy);
      }
  report.files.emplace_back("training-losses.csv", losses);
  report.files.emplace_back("validations.csv", validations);
}

}  // namespace

void add_training(const DualPipeRun& run, Report& report) {
  const DualPipeData data = read_data(run);
  std::vector<TrainedNetwork> all;
  for (const DualPipeNetwork& network : run.networks)
    all.push_back(train_all(run, network, data.of(network)));
  add_curves(run, all, report.figures);
  add_time_to_accuracy(all, report);
  add_files(all, report);
  add_accuracy_claims(run, all, report);
}

}  // namespace tandem::apps
