#include "mu_two_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/memory/memory_explanation.h>

#include "claims.h"
#include "log.h"
#include "mu_two_measured.h"
#include "mu_two_simulation.h"
#include "mu_two_systems.h"
#include "mu_two_techniques.h"

namespace tandem::apps {
namespace {

using Kind = Figure::Kind;
constexpr double kGb = 1e9;

// Table 1, and then the larger batches of ours.
const std::vector<MuTwoNetwork>& networks() {
  static const std::vector<MuTwoNetwork> all = [] {
    std::vector<MuTwoNetwork> both = mu_two_networks();
    for (const MuTwoNetwork& n : mu_two_networks())
      if (n.larger > 0) both.push_back(with_larger_batch(n));
    return both;
  }();
  return all;
}

// BERT and DLRM, as in Figs. 8g and 8h: the smaller batch of Table 1, and three quarters of ours.
std::vector<MuTwoNetwork> networks_on_v100() {
  std::vector<MuTwoNetwork> some;
  for (const MuTwoNetwork& n : networks())
    if (n.network == "bert_base" || n.network == "dlrm")
      some.push_back(with_samples(n, n.is_ours ? n.samples * 3 / 4 : n.smaller));
  return some;
}

std::string table_1() {
  std::vector<std::string> texts;
  for (const MuTwoNetwork& n : mu_two_networks())
    texts.push_back(fmt::format("{} {} and {}{}", n.title, n.smaller, n.samples,
                                n.words > 0 ? fmt::format(" texts of {} words", n.words) : ""));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string batches_of_ours() {
  std::vector<std::string> texts;
  for (const MuTwoNetwork& n : mu_two_networks())
    if (n.larger > 0) texts.push_back(fmt::format("{} {}", n.title, n.larger));
  return fmt::format("{}", fmt::join(texts, ", "));
}

class MuTwoReport {
 public:
  MuTwoReport(const MuTwoOptions& o, const SaveReport& save) : o_(o), save_(save) {
    for (const std::string& figure : o.only)
      if (!contains(kFigures, figure))
        throw Error(fmt::format("--only {}: there is no such figure; there are {}", figure,
                                fmt::join(kFigures, ", ")));
    for (const std::string& name : o.networks)
      if (std::ranges::find(mu_two_networks(), name, &MuTwoNetwork::network) == mu_two_networks().end()) {
        std::vector<std::string> names;
        for (const MuTwoNetwork& n : mu_two_networks()) names.push_back(n.network);
        throw Error(fmt::format("--networks {}: there are {}", name, fmt::join(names, ", ")));
      }
    if (o.rounds < 1) throw Error(fmt::format("--rounds {}: a median needs at least 1", o.rounds));
    report_.title = "μ-TWO: 3x Faster Multi-Model Training with Orchestration and Memory Optimization";
    report_.introduction = introduction();
  }

  Report run() {
    if (wants("fig1")) fig1();
    if (wants("fig3")) fig3();
    if (wants("fig8") || wants("fig7") || wants("fig9")) systems();
    const auto on_a100 = [this](const MuTwoNetwork& n) -> auto& { return simulation(n, mu_two_a100()); };
    if (wants("table-d"))
      add(features_figure(chosen(mu_two_networks()), mu_two_a100().bytes, on_a100, report_.claims));
    if (wants("table-e")) add(techniques_figure(chosen(networks()), on_a100, report_.claims));
    if (wants("kernels")) kernels();
    measured();
    return std::move(report_);
  }

  static inline const std::vector<std::string> kFigures{"fig1",          "fig3",         "fig7",    "fig8",
                                                        "fig9",          "table-d",      "table-e", "kernels",
                                                        "fig1-measured", "fig8-measured"};
  static constexpr std::array kKernels{10.0, 100.0, 1000.0, 3000.0, 10000.0};

 private:
  bool wants(const std::string& figure) const { return o_.only.empty() || contains(o_.only, figure); }
  bool wants(const MuTwoNetwork& n) const { return o_.networks.empty() || contains(o_.networks, n.network); }
  std::vector<MuTwoNetwork> chosen(std::vector<MuTwoNetwork> all) const {
    std::erase_if(all, [this](const MuTwoNetwork& n) { return !wants(n); });
    return all;
  }
  void add(Figure figure) {
    if (figure.panels.empty()) return;  // of networks that --networks leaves out
    report_.figures.push_back(std::move(figure));
    save_(report_);
  }

  MuTwoSimulation& simulation(const MuTwoNetwork& n, const MuTwoDevice& device) {
    auto& made = simulations_[fmt::format("{} {} {}", n.network, n.samples, device.name)];
    if (!made) made = std::make_unique<MuTwoSimulation>(n, with_kernels_of(device, o_.kernel_us));
    return *made;
  }

  std::vector<std::string> introduction() const {
    const DeviceSpeed a = with_kernels_of(mu_two_a100(), o_.kernel_us).speed, v = mu_two_v100().speed;
    const double kernel_us = 1e6 * a.seconds_per_kernel;
    return {
        fmt::format(
            "Several models of one network train on one device. Each array of models is the Program that Tandem "
            "would run, traced from the network in its full size, with Adam. A kernel of W operations and B bytes "
            "takes max(W / peak, B / bandwidth) + {0:g} µs. The peaks and bandwidths are those of the data "
            "sheets, for f32 without tensor cores: {1:.1f} TFLOP/s and {2:.0f} GB/s on the A100, {3:.1f} TFLOP/s "
            "and {4:.0f} GB/s on the V100. The {0:g} µs stand for a kernel's launch, and for the time in which "
            "few of its blocks run. They are the only number that was chosen, and nothing is fitted to the paper's "
            "results.",
            kernel_us, a.flops / 1e12, a.bytes / 1e9, v.flops / 1e12, v.bytes / 1e9),
        fmt::format(
            "So a kernel's utilization is the share of its time that the roofline, max(W / peak, B / bandwidth), "
            "takes. An array of n models has kernels of n times the operations and bytes, and as many of them as "
            "one model: fusing saves {:g} µs at most for each kernel and model. Copies cross PCIe with 32 GB/s "
            "each way. A policy plans the memory of each array, or of each pair, and the plan is replayed.",
            kernel_us),
        "HFTA trains the largest arrays that fit, one after the other. HFTA-Capuchin fuses all models into one "
        "array, and swaps and recomputes by Capuchin's rules. μ-TWO trains pairs of arrays; of the partitions that "
        "fit, the fastest counts. `mu-two` is the paper's greedy scheduler, repaired; `mu-two+` a local search "
        "after it.",
        fmt::format(
            "The batches are those of the paper's Table 1: {}. The larger one is on the A100, the smaller one on "
            "the V100. The paper does not say how long its texts are; these have the most words that the networks "
            "take. Tandem's attention keeps no T×S array, and one kernel computes several pointwise ops, so a model "
            "needs less memory than in the paper. Where twelve models with the batch of Table 1 fit the A100 "
            "without a plan, a larger \"batch of ours\" comes in addition: {}, and three quarters of it on the V100.",
            table_1(), batches_of_ours())};
  }

  // How long feature maps rest, how memory grows and falls, and what four models need.
  void fig3() {
    const MuTwoNetwork bert = with_samples(mu_two_networks()[0], 32);
    const MemoryProblem& problem = simulation(bert, mu_two_a100()).problem_of({1});
    const MemoryPlan none = memory_policy("none").make(problem, problem.static_bytes).plan;
    Panel rest{"", {}, {{"at rest", {}}, {"copies there and back", {}}}};
    int n = 0, hidden = 0;
    for (const ValueVerdict& v : explain(problem, none)) {
      rest.places.push_back(std::to_string(n++));
      rest.series[0].values.push_back(v.rest_ms);
      rest.series[1].values.push_back(v.swap_ms);
      hidden += v.rest_ms > v.swap_ms ? 1 : 0;
    }
    const double part = n > 0 ? static_cast<double>(hidden) / n : 0;
    add({"fig3a",
         "Fig. 3a: how long the feature maps of BERT rest between forward and backward",
         fmt::format(
             "One model, {} texts of {} words: feature maps in the order of forward. {:.0f} % rest longer "
             "than two copies take.",
             bert.samples, bert.words, 100 * part),
         Kind::lines,
         "",
         "feature map",
         "time",
         "ms",
         {std::move(rest)}});
    Panel live{"", {}, {{"live", {}}}};
    std::vector<double> bytes;
    for (const MemorySpan& span : spans_of(problem, none))
      bytes.push_back(static_cast<double>(span.live_bytes) / kGb);
    for (std::size_t i = 0; i < bytes.size(); ++i) live.places.push_back(std::to_string(i));
    const auto peak = std::ranges::max_element(bytes);
    const auto forward = problem.graphs[0].forward_nodes();
    live.series[0].values = bytes;
    add({"fig3b",
         "Fig. 3b: memory of a training step of BERT",
         fmt::format("One model without a plan, {} texts of {} words, instruction by instruction.",
                     bert.samples, bert.words),
         Kind::lines,
         "",
         "instruction",
         "memory",
         "GB",
         {std::move(live)}});
    report_.claims.push_back(claim(
        "memory grows in forward and falls in backward: the peak is where forward ends",
        "the peak is at the end of forward",
        std::abs(static_cast<double>(peak - bytes.begin()) - forward) < 0.1 * forward,
        fmt::format("at instruction {} of {}; forward has {}", peak - bytes.begin(), bytes.size(), forward),
        ""));
    four_models();
  }

  // Fig. 3c.
  void four_models() {
    Panel four{"", {}, {{"smaller batch", {}}, {"larger batch", {}}}};
    std::vector<int> above{0, 0};  // by batch
    for (const MuTwoNetwork& network : chosen(mu_two_networks())) {
      four.places.push_back(network.title);
      for (const std::size_t b : {0, 1}) {
        MuTwoSimulation& s =
            simulation(with_samples(network, b == 0 ? network.smaller : network.samples), mu_two_a100());
        const std::int64_t bytes = s.unlimited(4).peak_bytes;
        four.series[b].values.push_back(static_cast<double>(bytes) / kGb);
        above[b] += bytes > mu_two_a100().bytes ? 1 : 0;
      }
    }
    const auto count = static_cast<int>(four.places.size());
    if (count == 0) return;
    add({"fig3c",
         "Fig. 3c: memory of four fused models",
         "Without a plan, with both batches of Table 1. The A100 has 40 GB.",
         Kind::bars,
         "",
         "network",
         "batch",
         "GB",
         {std::move(four)}});
    report_.claims.push_back(claim(
        "four models exceed the A100's memory", "of all networks", above[0] == count && above[1] == count,
        fmt::format("of {} of {} with the larger batch, of {} with the smaller", above[1], count, above[0]),
        "the batches are the paper's, and everything that a step keeps is counted; but attention keeps no T×S "
        "array, and pointwise ops are fused, so there are fewer feature maps. The paper does not say what fills "
        "40 GB with four models of DLRM, which have 40 million parameters each"));
  }

  // Time, memory and utilization by the degree of fusion.
  void fig1() {
    constexpr int kMost = 8;
    Panel time{"ms for each model and batch", {}, {}}, memory{"GB", {}, {}}, used{"utilization", {}, {}};
    for (Panel* p : {&time, &memory, &used})
      for (int k = 1; k <= kMost; ++k) p->places.push_back(std::to_string(k));
    for (const MuTwoNetwork& network : chosen(mu_two_networks())) {
      MuTwoSimulation& s = simulation(network, mu_two_a100());
      for (Panel* p : {&time, &memory, &used}) p->series.push_back({network.title, {}});
      for (int k = 1; k <= kMost; ++k) {
        const MuTwoOutcome o = s.unlimited(k);
        time.series.back().values.push_back(o.ms / k);
        memory.series.back().values.push_back(static_cast<double>(o.peak_bytes) / kGb);
        used.series.back().values.push_back(o.utilization());
      }
    }
    claim_fusion(time, memory);
    claim_utilization(used);
    add({"fig1",
         "Fig. 1: what fusing models saves in time, needs in memory, and uses of the device",
         "Arrays of 1 to 8 models on an A100 with enough memory. Utilization is the time of the rooflines over the "
         "whole time. What it leaves is all that fusing more models can save: one over it is the most that a larger "
         "array can gain.",
         Kind::lines,
         "what",
         "models in the array",
         "network",
         "value",
         {std::move(time), std::move(memory), std::move(used)}});
  }

  void claim_fusion(const Panel& time, const Panel& memory) {
    std::vector<std::string> others;
    for (std::size_t i = 0; i < time.series.size(); ++i) {
      const std::vector<double>&ms = time.series[i].values, &gb = memory.series[i].values;
      if (ms.back() >= ms.front() || gb.back() <= gb.front())
        others.push_back(
            fmt::format("{} ({:.1f} % of the time)", time.series[i].name, 100 * ms.back() / ms.front()));
    }
    report_.claims.push_back(claim(
        "an array of eight takes less time for each model than one model, and more memory", "of all networks",
        others.empty(),
        others.empty() ? "of all networks" : fmt::format("not of {}", fmt::join(others, ", ")),
        "some pointwise ops that one model computes inside other kernels are kernels of their own in an array"));
  }

  void claim_utilization(const Panel& used) {
    const double kernel_us = 1e6 * with_kernels_of(mu_two_a100(), o_.kernel_us).speed.seconds_per_kernel;
    std::vector<double> of_one, rooflines;  // of a kernel, in µs on average
    std::vector<std::string> texts;
    bool rises = true;
    for (const Series& s : used.series) {
      rises = rises && s.values.back() > s.values.front();
      of_one.push_back(s.values.front());
      texts.push_back(fmt::format("{} {:.0f} %", s.name, 100 * of_one.back()));
      rooflines.push_back(kernel_us * of_one.back() / (1 - of_one.back()));
    }
    if (of_one.empty()) return;
    const Range us = range_of(rooflines);
    report_.claims.push_back(
        {"utilization of the A100 by one model", "about 50 %", fmt::format("{}", fmt::join(texts, ", ")),
         compared({0.5, 0.5}, range_of(of_one)),
         fmt::format(
             "a kernel's roofline takes {:.0f} to {:.0f} µs on average; at 50 % a kernel would lose as much "
             "again, not {:.0f} µs. A roofline fills the device however few blocks a kernel has, and counts "
             "as used what only a kernel's bytes fill",
             us.least, us.most, kernel_us)});
    report_.claims.push_back(claim("fusing models raises the utilization", "of all networks", rises,
                                   rises ? "of all networks" : "not of all networks", ""));
  }

  void measured() {
    MuTwoMeasurement here(
        [this](const std::string& title) {
          const auto network = std::ranges::find(mu_two_networks(), title, &MuTwoNetwork::title);
          return network != mu_two_networks().end() && wants(*network);
        },
        [this](Figure figure) { add(std::move(figure)); }, report_.claims, o_.rounds);
    if (wants("fig1-measured")) here.fusion();
    if (wants("fig8-measured")) here.systems();
  }

  static MuTwoDevice with_kernels_of(MuTwoDevice device, double us) {
    if (us > 0) device.speed.seconds_per_kernel = us * 1e-6;
    return device;
  }

  // How much μ-TWO gains depends on how badly a single model's kernels fill the device.
  void kernels() {
    Panel panel{"", {}, {}};
    for (const double us : kKernels) panel.places.push_back(fmt::format("{}", us));
    double most = 0;
    for (const MuTwoNetwork& row : chosen(mu_two_networks())) {
      const MuTwoNetwork n = row.larger > 0 ? with_larger_batch(row) : row;
      Series& series = panel.series.emplace_back(Series{n.title, {}});
      for (const double us : kKernels) {
        MuTwoSimulation sim(n, with_kernels_of(mu_two_a100(), us));
        double best = 0;
        for (const int models : {4, 8, 12}) {
          const MuTwoOutcome hfta = sim.hfta(models), mu_two = sim.mu_two(models);
          if (hfta.possible && mu_two.possible) best = std::max(best, hfta.ms / mu_two.ms);
        }
        series.values.push_back(best);
        most = std::max(most, best);
      }
    }
    add({"kernels",
         "Not in the paper: the largest speedup over HFTA, by what a kernel takes beside its operations",
         "4, 8 or 12 models on the A100, with the batch of ours where there is one. The more a kernel takes beside its operations and bytes, the less of the device "
         "a single model uses, and the more a larger array saves.",
         Kind::lines,
         "",
         "µs of each kernel",
         "network",
         "speedup",
         {std::move(panel)}});
    report_.claims.push_back(ratio_claim(
        fmt::format("the largest speedup over HFTA if a kernel takes {:.0f} µs beside its operations",
                    kKernels.back()),
        3, most,
        "it cannot exceed the models of μ-TWO's largest array over those of HFTA's: the kernels of a pair's two "
        "arrays run one after the other"));
  }

  SystemOutcomes outcomes_of(const MuTwoNetwork& network, const MuTwoDevice& device,
                             std::vector<int> models) {
    MuTwoSimulation& s = simulation(network, device);
    SystemOutcomes o{network, device, std::move(models), {}, {}, {}, {}};
    for (const int n : o.models) {
      log_info(fmt::format("simulates {} models of {}", n, o.title()));
      o.hfta.push_back(s.hfta(n));
      o.capuchin.push_back(s.hfta_capuchin(n));
      o.mu_two.push_back(s.mu_two(n));
      o.greedy.push_back(s.mu_two(n, "mu-two"));
    }
    return o;
  }

  void systems() {
    std::vector<int> models;
    for (const int n : {2, 4, 6, 8, 10, 12})
      if (o_.most_models == 0 || n <= o_.most_models) models.push_back(n);
    std::vector<SystemOutcomes> all;
    for (const MuTwoNetwork& n : chosen(networks())) all.push_back(outcomes_of(n, mu_two_a100(), models));
    for (const MuTwoNetwork& n : chosen(networks_on_v100()))
      all.push_back(outcomes_of(n, mu_two_v100(), models));
    if (wants("fig8")) add(speedup_figure(all, report_.claims));
    if (wants("fig7")) add(hours_figure(all, report_.claims));
    if (wants("fig9"))
      for (Figure& figure : breakdown_figures(all, report_.claims)) add(std::move(figure));
  }

  const MuTwoOptions& o_;
  const SaveReport& save_;
  Report report_;
  std::map<std::string, std::unique_ptr<MuTwoSimulation>> simulations_;
};

}  // namespace

std::string mu_two_figure_help() { return fmt::format("of {}", fmt::join(MuTwoReport::kFigures, ", ")); }

std::vector<std::string> mu_two_figures(const MuTwoOptions& options) {
  return options.only.empty() ? MuTwoReport::kFigures : options.only;
}

Report mu_two_report(const MuTwoOptions& options, const SaveReport& save) {
  return MuTwoReport(options, save).run();
}

}  // namespace tandem::apps
