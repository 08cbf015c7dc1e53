#include "mu_two_techniques.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "claims.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kModels = 8;

struct Technique {
  const char *title, *policy;
  std::vector<int> arrays;
};
const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all{{"vDNN", "vdnn", {kModels}},
                                          {"checkpoint", "checkpoint", {kModels}},
                                          {"Capuchin", "capuchin", {kModels}},
                                          {"μ-TWO", "mu-two+", {kModels / 2, kModels / 2}}};
  return all;
}

constexpr int kMostModels = 12, kMostBatches = 64;
constexpr double kHigh = 0.5;  // the paper calls half of the device "severely underutilized"

// The largest value of `values`, which ascend, up to which all are possible; 0 if the first is not.
template <class F> int largest(const std::vector<int>& values, const F& is_possible) {
  int most = 0;
  for (const int value : values) {
    if (!is_possible(value)) break;
    most = value;
  }
  return most;
}

std::vector<int> doubled(int most) {
  std::vector<int> all;
  for (int n = 1; n <= most; n *= 2) all.push_back(n);
  return all;
}

}  // namespace

Figure features_figure(const std::vector<MuTwoNetwork>& networks, std::int64_t device_bytes,
                       const std::function<MuTwoSimulation&(const MuTwoNetwork&)>& simulation,
                       std::vector<Claim>& claims) {
  const auto panel = [](const std::string& title) { return Panel{title, {}, {{"HFTA", {}}, {"μ-TWO", {}}}}; };
  Panel batch = panel("largest batch of one model, over the network's"), models = panel("models at once"),
        memory = panel("share of the memory in use"), time = panel("utilization");
  bool trains_more = true, uses_more = true;
  int limited = 0;                 // networks of which fewer than kMostModels fit
  std::vector<double> used, more;  // more: models at once, where memory is the limit
  for (const MuTwoNetwork& network : networks) {
    for (Panel* p : {&batch, &models, &memory, &time}) p->places.push_back(network.title);
    const auto fits = [&](const std::string& policy) {
      return largest(doubled(kMostBatches), [&](int times) {
        MuTwoNetwork larger = network;
        larger.samples *= times;
        return simulation(larger).planned({1}, policy).possible;
      });
    };
    std::vector<int> counts(kMostModels), pairs;
    std::iota(counts.begin(), counts.end(), 1);
    for (int n = 2; n <= kMostModels; n += 2) pairs.push_back(n);
    MuTwoSimulation& here = simulation(network);
    const std::array batches{fits("none"), fits("mu-two+")};
    const std::array at_once{largest(counts, [&](int n) { return here.planned({n}, "none").possible; }),
                             largest(pairs, [&](int n) {
                               return here.planned({n / 2, n / 2}, "mu-two+").possible;
                             })};
    const std::array outcomes{here.hfta(kModels), here.mu_two(kModels)};
    for (const std::size_t s : {0, 1}) {
      const MuTwoOutcome& o = outcomes[s];
      batch.series[s].values.push_back(batches[s]);
      models.series[s].values.push_back(at_once[s]);
      memory.series[s].values.push_back(
          o.possible ? static_cast<double>(o.peak_bytes) / static_cast<double>(device_bytes) : kNone);
      time.series[s].values.push_back(o.possible ? o.utilization() : kNone);
      if (o.possible) used.push_back(o.utilization());
    }
    const bool is_limited = at_once[0] < kMostModels;
    trains_more = trains_more && (!is_limited || (batches[1] >= batches[0] && at_once[1] > at_once[0]));
    limited += is_limited ? 1 : 0;
    if (is_limited && at_once[0] > 0) more.push_back(static_cast<double>(at_once[1]) / at_once[0]);
    uses_more = uses_more && (!is_limited || memory.series[1].values.back() > memory.series[0].values.back());
  }
  const std::string of_limited =
      fmt::format("of all {} networks of which {} models do not fit", limited, kMostModels);
  if (limited > 0)
    claims.push_back(claim("μ-TWO trains more models at once than HFTA, and batches as large or larger",
                           "of all networks", trains_more, (trains_more ? "" : "not ") + of_limited, ""));
  if (!more.empty()) {
    const Range r = range_of(more);
    claims.push_back(
        {"models at once, over those that fit without a plan", "3 to 5 times",
         fmt::format("{:.1f} to {:.1f} times, where fewer than {} fit", r.least, r.most, kMostModels),
         compared({3, 5}, r), fmt::format("up to {} models were simulated", kMostModels)});
  }
  if (limited > 0)
    claims.push_back(claim("μ-TWO uses more of the memory than HFTA", "of all networks", uses_more,
                           (uses_more ? "" : "not ") + of_limited,
                           "the fastest partition need not be the largest"));
  if (used.empty()) return {};
  const Range r = range_of(used);
  claims.push_back(claim("HFTA and μ-TWO have a high utilization", "both", r.least > kHigh,
                         fmt::format("{:.0f} to {:.0f} % of the device", 100 * r.least, 100 * r.most),
                         "small batches have small kernels, also in an array"));
  return {
      "table-d",
      "Table D: what HFTA and μ-TWO train, and how much of the device they use",
      fmt::format("On the A100. Batches are doubled, up to {} times the network's, until they do not fit. "
                  "Models are counted up to {}. Memory and utilization are of {} models, as in Fig. 8.",
                  kMostBatches, kMostModels, kModels),
      Figure::Kind::bars,
      "feature",
      "network",
      "system",
      "value",
      {std::move(batch), std::move(models), std::move(memory), std::move(time)}};
}

Figure techniques_figure(const std::vector<MuTwoNetwork>& networks,
                         const std::function<MuTwoSimulation&(const MuTwoNetwork&)>& simulation,
                         std::vector<Claim>& claims) {
  Figure figure{
      "table-e",
      "Table E: what techniques for more than the memory cost",
      fmt::format("{} models on the A100: one array, or μ-TWO's pair of arrays. Computing again and waiting, "
                  "over the computation without a limit. No value: the technique has no plan that fits. "
                  "Checkpoints stand for Checkmate, whose exact search is for small graphs.",
                  kModels),
      Figure::Kind::bars,
      "network",
      "technique",
      "cost",
      "share",
      {}};
  bool holds = true;
  double most = 0;
  for (const MuTwoNetwork& network : networks) {
    Panel panel{network.title, {}, {{"computes again", {}}, {"waits", {}}}};
    std::vector<double> lost;
    for (const Technique& t : techniques()) {
      const MuTwoOutcome o = simulation(network).planned(t.arrays, t.policy);
      const double again = o.possible ? o.recompute_ms / o.compute_ms : kNone,
                   waits = o.possible ? o.stall_ms / o.compute_ms : kNone;
      panel.places.push_back(t.title);
      panel.series[0].values.push_back(again);
      panel.series[1].values.push_back(waits);
      lost.push_back(again + waits);
    }
    for (const double other : lost) holds = holds && (std::isnan(other) || lost.back() <= other + 1e-9);
    if (!std::isnan(lost.back())) most = std::max(most, lost.back());
    figure.panels.push_back(std::move(panel));
  }
  claims.push_back(claim("μ-TWO loses least of all techniques, to computing again and to waiting",
                         "low and none", holds, fmt::format("at most {:.1f} %", 100 * most), ""));
  return figure;
}

}  // namespace tandem::apps
