#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#include "libra_simulation.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// The tasks of Fig. 1a: all-reduce of 112.7 MB, and computation of 25.7 ms, of BERT-Base.
constexpr double kFig1Bytes = 112.7e6, kFig1ComputeMs = 25.7;
constexpr std::size_t kResNet = 1, kBert = 3;  // in libra_networks

using Kind = Figure::Kind;
using Value = double LibraOutcome::*;

// A panel for each network: a place for each policy, a series for each value.
std::vector<Panel> panels_of_networks(const LibraResults& results,
                                      const std::vector<std::pair<std::string, Value>>& values) {
  std::vector<Panel> panels;
  for (std::size_t n = 0; n < results.networks.size(); ++n) {
    Panel& panel = panels.emplace_back(Panel{results.networks[n].title, {}, {}});
    for (const LibraPolicy& policy : libra_policies()) panel.places.emplace_back(policy.title);
    for (const auto& [name, value] : values) {
      Series& series = panel.series.emplace_back(Series{name, {}});
      for (const LibraPolicy& policy : libra_policies())
        series.values.push_back(results.paper_cluster[n].at(policy.name).*value);
    }
  }
  return panels;
}

Figure fig1a(const LibraResults& results) {
  const AllReduceProfile& bert = results.networks[kBert].profile;
  const AllReduceCosts costs = ring_costs(kLibraNodes, bert.hop_latency_ms, {});
  Panel panel{"", {"0"}, {{"computation", {kFig1ComputeMs}}, {"all-reduce", {kNone}}}};
  for (int threads = 128; threads <= 2048; threads *= 2) {
    const ThreadRates rates = bert.contention.at(threads);
    panel.places.push_back(std::to_string(threads));
    panel.series[0].values.push_back(kFig1ComputeMs / rates.compute_rate);
    panel.series[1].values.push_back(costs.overlapped_ms(kFig1Bytes, rates));
  }
  return {
      "fig1a",
      "Fig. 1a: an all-reduce of 112.7 MB beside a computation of 25.7 ms",
      "BERT-Base on 8 nodes: g(b, r) of Eq. 5 and p(c, r) + a of Eq. 6, each as if the other lasted until its "
      "end. With 0 threads there is no all-reduce.",
      Kind::lines,
      "",
      "threads of the all-reduce",
      "task",
      "ms",
      {panel}};
}

Figure fig1b(const LibraResults& results) {
  Panel panel{"", {"8", "64"}, {{"128 threads", {1, 1}}, {"2048 threads", {}}}};
  for (const double batch : {8, 64}) panel.series[1].values.push_back(1 + fig1b_change(results, batch));
  return {
      "fig1b",
      "Fig. 1b: ResNet152's backward with 128 and with 2048 threads",
      "Over the time with 128 threads, on 8 nodes, with the groups of MG-WFBP. The shipped profile has batches of 32; times of computation are "
      "scaled in proportion to the batch.",
      Kind::bars,
      "",
      "batch size",
      "policy",
      "normalized backward time",
      {panel}};
}

Figure fig6(const LibraResults& results) {
  Panel panel;
  for (const LibraNetwork& network : results.networks) panel.places.push_back(network.title);
  for (const LibraPolicy& policy : libra_policies()) {
    Series& series = panel.series.emplace_back(Series{policy.title, {}});
    for (const auto& outcomes : results.paper_cluster)
      series.values.push_back(outcomes.at(policy.name).samples_per_second);
  }
  return {"fig6",
          "Fig. 6: throughput",
          "Samples per second of one of 8 nodes.",
          Kind::bars,
          "",
          "network",
          "policy",
          "samples/s",
          {panel}};
}

Figure fig7(const LibraResults& results) {
  return {
      "fig7",
      "Fig. 7: backward time",
      "Computation, slowed down by the all-reduces beside it, and what is left of the all-reduces after it, on "
      "8 nodes.",
      Kind::stacked_bars,
      "network",
      "policy",
      "part",
      "ms",
      panels_of_networks(results, {{"computation", &LibraOutcome::compute_ms},
                                   {"residual communication", &LibraOutcome::residual_ms}})};
}

Figure fig8(const LibraResults& results) {
  return {"fig8",
          "Fig. 8: computation and communication",
          "How long each takes in a backward pass on 8 nodes, whether beside the other or not.",
          Kind::bars,
          "network",
          "policy",
          "part",
          "ms",
          panels_of_networks(results, {{"computation", &LibraOutcome::compute_ms},
                                       {"communication", &LibraOutcome::all_reduce_ms}})};
}

Figure fig9(const LibraResults& results) {
  std::vector<Panel> panels;
  for (std::size_t n = 0; n < results.networks.size(); ++n) {
    Panel& panel = panels.emplace_back(Panel{results.networks[n].title, {}, {}});
    for (const auto& [nodes, outcomes] : results.scaling) panel.places.push_back(std::to_string(nodes));
    for (const LibraPolicy& policy : libra_policies()) {
      if (std::string(policy.name) == "mg-cf") continue;  // not in the paper's figure
      Series& series = panel.series.emplace_back(Series{policy.title, {}});
      for (const auto& [nodes, outcomes] : results.scaling)
        series.values.push_back(outcomes[n].at(policy.name).normalized);
    }
  }
  return {
      "fig9",
      "Fig. 9: throughput on larger clusters",
      "Throughput of a node, over that of one node alone. Only the start-up of an all-reduce and the bytes that "
      "a node sends depend on the number of nodes (Eq. 4).",
      Kind::lines,
      "network",
      "nodes",
      "policy",
      "normalized throughput",
      panels};
}

}  // namespace

double fig1a_slowdown(const LibraResults& results, int threads) {
  return 1 / results.networks[kBert].profile.contention.at(threads).compute_rate - 1;
}

double fig1b_change(const LibraResults& results, double batch_size) {
  const AllReduceProfile profile = with_batch(results.networks[kResNet].profile, batch_size);
  const auto backward_ms = [&](int threads) {
    return libra_outcome(with_baseline_threads(profile, threads), "mg-wfbp", kLibraNodes).backward_ms;
  };
  return backward_ms(2048) / backward_ms(128) - 1;
}

std::vector<Figure> libra_figures(const LibraResults& r) {
  return {fig1a(r), fig1b(r), fig6(r), fig7(r), fig8(r), fig9(r)};
}

}  // namespace tandem::apps
