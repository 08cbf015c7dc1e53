// Table 1 and Fig. 13: what the trained networks say about the paper's sentences.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dualpipe_families.h"
#include "dualpipe_learning.h"
#include "dualpipe_schemes.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kGpus = 4;

// ---- accuracy --------------------------------------------------------------------------------------

// The best accuracy of a scheme over that of another, in points, mean over the networks: of one seed.
double points_over(const std::vector<TrainedNetwork>& all, std::size_t scheme, std::size_t other,
                   std::size_t seed) {
  std::vector<double> points;
  for (const TrainedNetwork& t : all)
    points.push_back(100 * (best_accuracy(t.curves[scheme][seed]) - best_accuracy(t.curves[other][seed])));
  return mean(points);
}

// The same by seed.
std::vector<double> points_by_seed(const std::vector<TrainedNetwork>& all, std::size_t scheme,
                                   std::size_t other) {
  std::vector<double> points;
  for (std::size_t seed = 0; seed < all.front().curves[scheme].size(); ++seed)
    points.push_back(points_over(all, scheme, other, seed));
  return points;
}

// The same by network, mean over the seeds.
std::string by_network_text(const std::vector<TrainedNetwork>& all, std::size_t scheme, std::size_t other) {
  std::vector<std::string> texts;
  for (const TrainedNetwork& t : all)
    texts.push_back(fmt::format("{} {:+.1f}", t.network->title, mean(points_by_seed({t}, scheme, other))));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string points_text(double points) { return fmt::format("{:+.2f} points", points); }

std::string by_seed_text(const std::vector<double>& points) {
  const Range range = range_of(points);
  return points.size() == 1 ? "of one seed"
                            : fmt::format("by seed {:+.2f} to {:+.2f}", range.least, range.most);
}

// How the trainings differ from the paper's.
std::string unlike_the_paper(const DualPipeRun& run, const std::vector<TrainedNetwork>& all) {
  std::set<std::int64_t> batches;
  std::vector<std::string> networks;
  for (const TrainedNetwork& t : all) {
    batches.insert(t.batch_size);
    networks.push_back(t.network->title);
  }
  return fmt::format(
      "Trained here (in the paper): {}{} (six networks), batches of {} ({}), {} iterations (5000), at one rate each. "
      "--only rates says what the rate makes of it, and what it does that F and B use different weights "
      "(results: docs/pipelines.md).",
      fmt::join(networks, ", "), run.paper ? "" : " in small sizes", fmt::join(batches, " and "), kPaperBatch,
      run.iterations);
}

// ---- time to accuracy ------------------------------------------------------------------------------

// By scheme, of one network.
struct TimesToAccuracy {
  const DualPipeNetwork* network = nullptr;
  std::map<std::size_t, double> periods{};
  std::map<std::size_t, double> iterations{};  // NaN if a scheme was never validated
  double ms(std::size_t scheme) const { return iterations.at(scheme) * periods.at(scheme); }
  bool is_known() const { return !std::isnan(iterations.at(kData)); }
};

// The iterations to the lowest of the best accuracies of the timed schemes, by scheme: the paper's criterion.
// NaN if a scheme diverged before it was validated: then there is no such accuracy.
std::map<std::size_t, double> iterations_to_accuracy(const TrainedNetwork& t, std::size_t seed) {
  double target = 1;
  bool is_known = true;
  for (const std::size_t s : kTimedSchemes) {
    target = std::min(target, best_accuracy(t.curves[s][seed]));
    is_known = is_known && !t.curves[s][seed].validations.empty();
  }
  std::map<std::size_t, double> iterations;
  for (const std::size_t s : kTimedSchemes) {
    const auto& validations = t.curves[s][seed].validations;
    const auto reached =
        std::ranges::find_if(validations, [&](const Validation& v) { return v.accuracy >= target; });
    iterations[s] = is_known ? static_cast<double>(reached->iterations) : kNone;
  }
  return iterations;
}

// The means over the seeds, on four GPUs.
TimesToAccuracy times_to_accuracy(const TrainedNetwork& t) {
  TimesToAccuracy result{t.network};
  const SchemeOutcomes outcomes = scheme_outcomes(family_profile(network_families()[t.network->kind], kGpus));
  for (const std::size_t s : kTimedSchemes)
    result.periods[s] = outcomes.at(kDualPipeSchemes[s].timed_as).period_ms;
  const std::size_t seeds = t.curves[kData].size();
  for (std::size_t seed = 0; seed < seeds; ++seed)
    for (const auto& [scheme, iterations] : iterations_to_accuracy(t, seed))
      result.iterations[scheme] += iterations / static_cast<double>(seeds);
  return result;
}

Figure fig13(const std::vector<TimesToAccuracy>& all) {
  Panel panel;
  for (const std::size_t s : kTimedSchemes) panel.series.push_back({kDualPipeSchemes[s].title, {}});
  for (const TimesToAccuracy& t : all) {
    panel.places.push_back(t.network->title);
    for (std::size_t i = 0; i < panel.series.size(); ++i)
      panel.series[i].values.push_back(t.ms(kTimedSchemes[i]) / t.ms(kData));
  }
  return {
      "fig13",
      "Fig. 13: total training time",
      fmt::format(
          "Iterations to the lowest of the three best validation accuracies, as counted here every {} "
          "iterations and at the end, times the period on four GPUs of Fig. 10's fitted profiles. A network of which "
          "a training diverged before it was validated has no bars.",
          kValidateEvery),
      Figure::Kind::bars,
      "",
      "network",
      "scheme",
      "time over that of Data P.",
      {panel}};
}

Claim time_claim(const std::vector<TimesToAccuracy>& all, NetworkKind kind, std::size_t over, double paper) {
  std::vector<double> ratios, of_periods, iterations;
  std::vector<std::string> unknown;
  for (const TimesToAccuracy& t : all) {
    if (kind != kAll && t.network->kind != kind) continue;
    if (!t.is_known()) unknown.push_back(t.network->title);
    if (!t.is_known()) continue;
    ratios.push_back(t.ms(kSpecTrain) / t.ms(over));
    of_periods.push_back(t.periods.at(kSpecTrain) / t.periods.at(over));
    for (const std::size_t scheme : {kSpecTrain, over}) iterations.push_back(t.iterations.at(scheme));
  }
  const std::string left_out =
      unknown.empty() ? "" : fmt::format(" (without {}: a training diverged)", fmt::join(unknown, ", "));
  const std::string asked =
      fmt::format("Fig. 13: training time over that of {}, {}{}", kDualPipeSchemes[over].title,
                  kind == kAll ? "all networks" : network_families()[kind].title, left_out);
  if (ratios.empty())
    return {asked, share(paper), "", Verdict::unexamined, "No such network has a time here."};
  const double ours = geometric_mean(ratios), periods = geometric_mean(of_periods), count = mean(iterations);
  const std::string step =
      count > kValidateEvery
          ? fmt::format(
                ", which is {} of their mean: by so much, one validation more or less changes the time of a network and a seed",
                share(kValidateEvery / count))
          : "";
  return share_claim(
      asked, paper, ours,
      fmt::format("The periods of Fig. 10 alone give {}; the iterations, {}. They are counted at "
                  "validations, every {} iterations{}.",
                  share(periods), times(ours / periods), kValidateEvery, step));
}

}  // namespace

void add_accuracy_claims(const DualPipeRun& run, const std::vector<TrainedNetwork>& all, Report& report) {
  const std::string unlike = unlike_the_paper(run, all);
  for (const std::size_t scheme : {kVanilla, kPipeDream, kSpecTrain}) {
    const double paper = kDualPipeSchemes[scheme].paper_points;
    const std::vector<double> points = points_by_seed(all, scheme, kData);
    const Verdict verdict = compared({paper, paper}, {mean(points), mean(points)});
    report.claims.push_back(
        {fmt::format("Table 1: highest accuracy, {} over Data P., mean", kDualPipeSchemes[scheme].title),
         points_text(paper), fmt::format("{}, {}", points_text(mean(points)), by_seed_text(points)), verdict,
         verdict == Verdict::agrees
             ? ""
             : fmt::format("{} By network: {}.", unlike, by_network_text(all, scheme, kData))});
  }
  const std::vector<double> over_pipedream = points_by_seed(all, kSpecTrain, kPipeDream),
                            over_vanilla = points_by_seed(all, kSpecTrain, kVanilla);
  report.claims.push_back(claim(
      "Table 1: SpecTrain more accurate than PipeDream and Vanilla DualPipe, mean", "yes",
      mean(over_pipedream) > 0 && mean(over_vanilla) > 0,
      fmt::format("over PipeDream {}, {}; over Vanilla DualPipe {}, {}", points_text(mean(over_pipedream)),
                  by_seed_text(over_pipedream), points_text(mean(over_vanilla)), by_seed_text(over_vanilla)),
      fmt::format("{} Over PipeDream, by network: {}.", unlike,
                  by_network_text(all, kSpecTrain, kPipeDream))));
}

void add_time_to_accuracy(const std::vector<TrainedNetwork>& all, Report& report) {
  std::vector<TimesToAccuracy> times;
  for (const TrainedNetwork& t : all) times.push_back(times_to_accuracy(t));
  report.figures.push_back(fig13(times));
  struct Row {
    NetworkKind kind;
    double data, pipedream;
  };
  for (const Row& row : {Row{kAll, 0.338, 0.421}, Row{kCnn, 0.769, 0.491}, Row{kOther, 0.149, 0.361}}) {
    report.claims.push_back(time_claim(times, row.kind, kData, row.data));
    report.claims.push_back(time_claim(times, row.kind, kPipeDream, row.pipedream));
  }
}

}  // namespace tandem::apps
