#include "mu_two_techniques.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace

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
