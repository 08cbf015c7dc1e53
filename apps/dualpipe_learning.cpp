// Figs. 5, 12, 13 and Table 1: what networks learn on pipelines.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"
#include "dualpipe_families.h"
#include "dualpipe_schemes.h"
#include "dualpipe_training.h"
#include "log.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kStages = 4;
constexpr std::size_t kSmoothed = 20, kDrawnEvery = 10;  // iterations of a curve of losses

struct Trained {
  const DualPipeNetwork* network;
  std::int64_t batch_size = 0;
  std::vector<std::vector<LearningCurve>> curves;  // by scheme and seed
};

// A number of each seed.
template <class F> std::vector<double> by_seed(const std::vector<LearningCurve>& curves, F number) {
  std::vector<double> result;
  for (const LearningCurve& curve : curves) result.push_back(number(curve));
  return result;
}

double accuracy(const Trained& t, std::size_t scheme) {
  return mean(by_seed(t.curves[scheme], best_accuracy));
}

Trained train_all(const DualPipeRun& run, const DualPipeNetwork& network, const DualPipeImages& images) {
  Trained trained{&network, run.batch(network.small_batch), {}};
  for (const DualPipeScheme& scheme : kDualPipeSchemes) {
    auto& curves = trained.curves.emplace_back();
    for (int seed = 1; seed <= run.seeds; ++seed)
      curves.push_back(train({.network = run.trained(network),
                              .schedule = scheme.schedule,
                              .stages = scheme.stages(kStages),
                              .lr = network.lr,
                              .batch_size = trained.batch_size,
                              .iterations = run.iterations,
                              .seed = static_cast<std::uint64_t>(seed)},
                             images));
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

// A panel per network, with the means over the seeds. A seed that diverged has no later points.
Figure curves_figure(const std::string& id, const std::string& title, const std::string& text,
                     const std::string& value_name, Points (*points)(const LearningCurve&),
                     const std::vector<Trained>& all, const std::vector<std::size_t>& which) {
  Figure figure{id, title, text, Figure::Kind::lines, "network", "iteration", "scheme", value_name, {}};
  for (const Trained& t : all) {
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
                    double (*number)(const LearningCurve&), const std::vector<Trained>& all) {
  Figure figure{id,
                title,
                "Mean, least and most of the seeds.",
                Figure::Kind::bars,
                "network",
                "scheme",
                "of seeds",
                value_name,
                {}};
  for (const Trained& t : all) {
    Panel& panel =
        figure.panels.emplace_back(Panel{t.network->title, {}, {{"mean", {}}, {"least", {}}, {"most", {}}}});
    for (std::size_t s = 0; s < kDualPipeSchemes.size(); ++s) {
      const std::vector<double> values = by_seed(t.curves[s], number);
      const Range range = range_of(values);
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

void add_curves(const DualPipeRun& run, const std::vector<Trained>& all, std::vector<Figure>& figures) {
  std::vector<std::string> sizes;
  for (const Trained& t : all)
    sizes.push_back(fmt::format("{}: batch {}, rate {}", t.network->title, t.batch_size, t.network->lr));
  const std::string how = fmt::format(
      "{} iterations, mean of {}; {}. Data P. is one device with the same batches; the others run on {} stages. "
      "Every {} iterations the network is validated. A pipeline is empty then, so its next batches meet weights that "
      "are less old than usual.",
      run.iterations, counted(run.seeds, "seed"), fmt::join(sizes, "; "), kStages, kValidateEvery);
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
void add_files(const std::vector<Trained>& all, Report& report) {
  std::string losses = "network,scheme,seed,iteration,loss\n",
              validations = "network,scheme,seed,iteration,loss,accuracy\n";
  for (const Trained& t : all)
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

// ---- time to accuracy ------------------------------------------------------------------------------

// The iterations to the lowest of the best accuracies of the timed schemes, by scheme: the paper's criterion.
std::map<std::size_t, double> iterations_to_accuracy(const Trained& t, std::size_t seed) {
  double target = 1;
  for (const std::size_t s : kTimedSchemes) target = std::min(target, best_accuracy(t.curves[s][seed]));
  std::map<std::size_t, double> iterations;
  for (const std::size_t s : kTimedSchemes) {
    const LearningCurve& curve = t.curves[s][seed];
    const auto reached = std::ranges::find_if(
        curve.validations, [&](const Validation& v) { return v.accuracy >= target - 1e-12; });
    iterations[s] = reached == curve.validations.end() ? kNone : static_cast<double>(reached->iterations);
  }
  return iterations;
}

// Milliseconds to this accuracy on four GPUs, by scheme: the mean over the seeds.
std::map<std::size_t, double> times_to_accuracy(const Trained& t) {
  const auto& families = network_families();
  const SchemeOutcomes outcomes = scheme_outcomes(family_profile(families[t.network->kind], kStages));
  std::map<std::size_t, double> result;
  for (std::size_t seed = 0; seed < t.curves[kData].size(); ++seed)
    for (const auto& [scheme, iterations] : iterations_to_accuracy(t, seed))
      result[scheme] += iterations * outcomes.at(kDualPipeSchemes[scheme].timed_as).period_ms /
                        static_cast<double>(t.curves[kData].size());
  return result;
}

Figure fig13(const std::vector<Trained>& all) {
  Panel panel;
  for (const std::size_t s : kTimedSchemes) panel.series.push_back({kDualPipeSchemes[s].title, {}});
  for (const Trained& t : all) {
    panel.places.push_back(t.network->title);
    const auto times = times_to_accuracy(t);
    for (std::size_t i = 0; i < panel.series.size(); ++i)
      panel.series[i].values.push_back(times.at(kTimedSchemes[i]) / times.at(kData));
  }
  return {"fig13",
          "Fig. 13: total training time",
          fmt::format(
              "Iterations to the lowest of the three best validation accuracies, as counted here every {} "
              "iterations, times the period on four GPUs of Fig. 10's fitted profiles.",
              kValidateEvery),
          Figure::Kind::bars,
          "",
          "network",
          "scheme",
          "time over that of Data P.",
          {panel}};
}

// ---- claims ----------------------------------------------------------------------------------------

void add_accuracy_claims(const DualPipeRun& run, const std::vector<Trained>& all,
                         std::vector<Claim>& claims) {
  const auto lost = [&](std::size_t scheme) {
    std::vector<double> points;
    for (const Trained& t : all) points.push_back(100 * (accuracy(t, scheme) - accuracy(t, kData)));
    return points;
  };
  const auto text = [](double points) { return fmt::format("{:+.2f} points", points); };
  for (const auto& [scheme, paper] :
       {std::pair{kVanilla, -2.06}, std::pair{kPipeDream, -1.74}, std::pair{kSpecTrain, 0.12}}) {
    const std::vector<double> points = lost(scheme);
    const double ours = mean(points);
    const Range range = range_of(points);
    claims.push_back(
        {fmt::format("Table 1: highest accuracy, {} over Data P., mean", kDualPipeSchemes[scheme].title),
         text(paper), text(ours), compared({paper, paper}, {ours, ours}),
         fmt::format(
             "{} to {} by network. Other networks, smaller batches, and {} iterations: the rates are the "
             "paper's, with which a network is at another point of its training.",
             text(range.least), text(range.most), run.iterations)});
  }
  const double vanilla = mean(lost(kVanilla)), spectrain = mean(lost(kSpecTrain)),
               pipedream = mean(lost(kPipeDream));
  claims.push_back(claim("Table 1: SpecTrain more accurate than PipeDream and Vanilla DualPipe, mean", "yes",
                         spectrain > vanilla && spectrain > pipedream,
                         fmt::format("{}; {}; {}", text(spectrain), text(pipedream), text(vanilla)),
                         "The differences are smaller than those between seeds, or the rate is one at which "
                         "prediction does not help (docs/pipelines.md)."));
}

void add_time_claims(const std::vector<Trained>& all, std::vector<Claim>& claims) {
  const auto part = [&](std::size_t over, NetworkKind kind) {
    std::vector<double> ratios;
    for (const Trained& t : all) {
      const auto times = times_to_accuracy(t);
      const double ratio = times.at(kSpecTrain) / times.at(over);
      if (std::isfinite(ratio) && (kind == kAll || t.network->kind == kind)) ratios.push_back(ratio);
    }
    return ratios.empty() ? kNone : geometric_mean(ratios);
  };
  struct Row {
    const char* who;
    NetworkKind kind;
    double data, pipedream;
  };
  const std::string why =
      "The periods are those of Fig. 10; the iterations are multiples of the distance between validations.";
  for (const Row& row : {Row{"all networks", kAll, 0.338, 0.421}, Row{"CNN", kCnn, 0.769, 0.491},
                         Row{"FCN + RNN", kOther, 0.149, 0.361}}) {
    if (const double ours = part(kData, row.kind); !std::isnan(ours)) {
      claims.push_back(share_claim(fmt::format("Fig. 13: training time over that of Data P., {}", row.who),
                                   row.data, ours, why));
      claims.push_back(share_claim(fmt::format("Fig. 13: training time over that of PipeDream, {}", row.who),
                                   row.pipedream, part(kPipeDream, row.kind), why));
    }
  }
}

}  // namespace

void add_training(const DualPipeRun& run, Report& report) {
  const DualPipeImages images = read_images(run);
  std::vector<Trained> all;
  for (const DualPipeNetwork& network : run.networks) all.push_back(train_all(run, network, images));
  add_curves(run, all, report.figures);
  report.figures.push_back(fig13(all));
  add_files(all, report);
  add_accuracy_claims(run, all, report.claims);
  add_time_claims(all, report.claims);
}

}  // namespace tandem::apps
