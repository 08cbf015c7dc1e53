#include "mu_two_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
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
#include "mu_two_techniques.h"

namespace tandem::apps {
namespace {

using Kind = Figure::Kind;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kGb = 1e9, kMsPerHour = 3.6e6, kIterations = 10'000;

// Table 1 gives batch sizes in a picture; these are ours. Three to five models fill the A100 without a plan.
const std::vector<MuTwoNetwork>& networks() {
  static const std::vector<MuTwoNetwork> all{{"BERT", "bert_base", "text", 96},
                                             {"GPT-2", "gpt2", "text", 64},
                                             {"ViT", "vit_60m", "imagenet", 128},
                                             {"MobileNetV3", "mobilenet_v3_large", "imagenet", 512},
                                             {"ResNet-101", "resnet101", "imagenet", 128},
                                             {"DLRM", "dlrm", "clicks", 163840}};
  return all;
}

// Of one network on one device: what each system takes for each number of models.
struct Outcomes {
  std::string title;
  std::vector<int> models;
  std::vector<MuTwoOutcome> hfta, capuchin, mu_two, greedy;
};

class MuTwoReport {
 public:
  MuTwoReport(const MuTwoOptions& o, const SaveReport& save) : o_(o), save_(save) {
    for (const std::string& figure : o.only)
      if (!contains(kFigures, figure))
        throw Error(fmt::format("--only {}: there is no such figure; there are {}", figure,
                                fmt::join(kFigures, ", ")));
    for (const std::string& name : o.networks)
      if (std::ranges::find(networks(), name, &MuTwoNetwork::network) == networks().end()) {
        std::vector<std::string> names;
        for (const MuTwoNetwork& n : networks()) names.push_back(n.network);
        throw Error(fmt::format("--networks {}: there are {}", name, fmt::join(names, ", ")));
      }
    report_.title = "μ-TWO: 3x Faster Multi-Model Training with Orchestration and Memory Optimization";
    const DeviceSpeed& a = mu_two_a100().speed;
    report_.introduction = {
        fmt::format(
            "Several models of one network train on one device. Each array of models is the Program that Tandem would "
            "run, traced from the network in its full size, with Adam. What its kernels take comes from a roofline: "
            "max(operations / {:.1f} TFLOP/s, bytes / {:.0f} GB/s) + {:.0f} µs on the A100, "
            "{:.1f} TFLOP/s and {:.0f} GB/s on the V100. The 10 µs per kernel are what a fused array saves; they are "
            "the only number that was chosen, as the time that a launch and a kernel of few blocks take. Copies cross "
            "PCIe with 32 GB/s each way. A policy plans the memory of each array, or of each pair, and the plan is "
            "replayed.",
            a.flops / 1e12, a.bytes / 1e9, a.seconds_per_kernel * 1e6, mu_two_v100().speed.flops / 1e12,
            mu_two_v100().speed.bytes / 1e9),
        "HFTA trains the largest arrays that fit, one after the other. HFTA-Capuchin fuses all models into one array, "
        "and swaps and recomputes by Capuchin's rules. μ-TWO trains pairs of arrays; of the partitions that fit, the "
        "fastest counts. `mu-two` is the paper's greedy scheduler, repaired; `mu-two+` a local search after it.",
        "The batch sizes are ours: the paper's Table 1 is a picture. Tandem's attention keeps no T×S array, so text "
        "and vision transformers need less memory than in the paper, and more models fit without a plan."};
  }

  Report run() {
    if (wants("fig3")) fig3();
    if (wants("fig1")) fig1();
    if (wants("fig8") || wants("fig7") || wants("fig9")) fig8();
    const auto on_a100 = [this](const MuTwoNetwork& n) -> auto& { return simulation(n, mu_two_a100()); };
    if (wants("table-d")) add(features_figure(chosen(), mu_two_a100().bytes, on_a100, report_.claims));
    if (wants("table-e")) add(techniques_figure(chosen(), on_a100, report_.claims));
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
  std::vector<MuTwoNetwork> chosen() const {
    std::vector<MuTwoNetwork> all = networks();
    std::erase_if(all, [this](const MuTwoNetwork& n) { return !wants(n); });
    return all;
  }
  void add(Figure figure) {
    report_.figures.push_back(std::move(figure));
    save_(report_);
  }

  MuTwoSimulation& simulation(const MuTwoNetwork& n, const MuTwoDevice& device) {
    auto& made = simulations_[fmt::format("{} {} {}", n.network, n.samples, device.name)];
    if (!made) made = std::make_unique<MuTwoSimulation>(n, with_kernels_of(device, o_.kernel_us));
    return *made;
  }

  // How long feature maps rest, how memory grows and falls, and what four models need.
  void fig3() {
    const MuTwoNetwork& bert = networks()[0];
    MuTwoSimulation& sim = simulation(bert, mu_two_a100());
    const MemoryProblem& problem = sim.problem_of({1});
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
             "One model, batch {}: feature maps in the order of forward. {:.0f} % rest longer than two copies "
             "take.",
             bert.samples, 100 * part),
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
         "One model without a plan, instruction by instruction.",
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
    Panel four{"", {}, {{"four models", {}}, {"one model", {}}}};
    int above = 0, count = 0;
    for (const MuTwoNetwork& network : networks()) {
      if (!wants(network)) continue;
      MuTwoSimulation& s = simulation(network, mu_two_a100());
      four.places.push_back(network.title);
      four.series[0].values.push_back(static_cast<double>(s.unlimited(4).peak_bytes) / kGb);
      four.series[1].values.push_back(static_cast<double>(s.unlimited(1).peak_bytes) / kGb);
      above += s.unlimited(4).peak_bytes > mu_two_a100().bytes ? 1 : 0;
      ++count;
    }
    add({"fig3c",
         "Fig. 3c: memory of four fused models",
         "Without a plan. The A100 has 40 GB.",
         Kind::bars,
         "",
         "network",
         "models",
         "GB",
         {std::move(four)}});
    report_.claims.push_back(claim("four models exceed the A100's memory", "of all networks", above == count,
                                   fmt::format("of {} of {}", above, count),
                                   "the batch sizes are ours, and attention keeps no T×S array"));
  }

  // Time and memory by the degree of fusion.
  void fig1() {
    Panel time{"ms for each model and batch", {}, {}}, memory{"GB", {}, {}};
    for (int k = 1; k <= 8; ++k) time.places.push_back(std::to_string(k));
    memory.places = time.places;
    for (const MuTwoNetwork& network : networks()) {
      if (!wants(network)) continue;
      MuTwoSimulation& s = simulation(network, mu_two_a100());
      Series& ms = time.series.emplace_back(Series{network.title, {}});
      Series& gb = memory.series.emplace_back(Series{network.title, {}});
      for (int k = 1; k <= 8; ++k) {
        ms.values.push_back(s.unlimited(k).ms / k);
        gb.values.push_back(static_cast<double>(s.unlimited(k).peak_bytes) / kGb);
      }
    }
    const auto falls = [](const Series& s) { return s.values.back() < s.values.front(); };
    const bool holds = std::ranges::all_of(time.series, falls);
    add({"fig1",
         "Fig. 1: what fusing models saves in time, and needs in memory",
         "Arrays of 1 to 8 models on a device with enough memory.",
         Kind::lines,
         "what",
         "models in the array",
         "network",
         "value",
         {std::move(time), std::move(memory)}});
    report_.claims.push_back(claim("a larger array takes less time for each model, and more memory",
                                   "of all networks", holds,
                                   holds ? "of all networks" : "not of all networks", ""));
  }

  void measured() {
    MuTwoMeasurement here(
        [this](const std::string& title) {
          const auto network = std::ranges::find(networks(), title, &MuTwoNetwork::title);
          return network != networks().end() && wants(*network);
        },
        [this](Figure figure) { add(std::move(figure)); }, report_.claims);
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
    for (const MuTwoNetwork& n : networks()) {
      if (!wants(n)) continue;
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
         "4, 8 or 12 models on the A100. With 10 µs kernels fill the device, and fusing more models saves little. With "
         "more, a single model leaves the device idle.",
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
        "it cannot exceed the number of models that μ-TWO trains at once, over the number that fits"));
  }

  Outcomes outcomes_of(const MuTwoNetwork& network, const MuTwoDevice& device, std::vector<int> models) {
    MuTwoSimulation& s = simulation(network, device);
    Outcomes o{network.title + ", " + device.name, std::move(models), {}, {}, {}, {}};
    for (const int n : o.models) {
      log_info(fmt::format("simulates {} models of {}", n, o.title));
      o.hfta.push_back(s.hfta(n));
      o.capuchin.push_back(s.hfta_capuchin(n));
      o.mu_two.push_back(s.mu_two(n));
      o.greedy.push_back(s.mu_two(n, "mu-two"));
    }
    return o;
  }

  void fig8() {
    std::vector<int> models;
    for (const int n : {2, 4, 6, 8, 10, 12})
      if (o_.most_models == 0 || n <= o_.most_models) models.push_back(n);
    std::vector<Outcomes> all;
    for (const MuTwoNetwork& n : networks())
      if (wants(n)) all.push_back(outcomes_of(n, mu_two_a100(), models));
    for (MuTwoNetwork n : {networks()[0], networks()[5]})
      if (wants(n)) {
        n.samples = n.samples * 3 / 4;  // for the smaller memory
        all.push_back(outcomes_of(n, mu_two_v100(), models));
      }
    if (wants("fig8")) speedups(all);
    if (wants("fig7")) hours(all);
    if (wants("fig9")) breakdown(all);
  }

  static double ratio(const MuTwoOutcome& than, const MuTwoOutcome& system) {
    return than.possible && system.possible ? than.ms / system.ms : kNone;
  }

  void speedups(const std::vector<Outcomes>& all) {
    Figure figure{
        "fig8",
        "Fig. 8: speedup over HFTA",
        "Time of HFTA's arrays in turn over that of each system, for a batch of every model. No value: the "
        "system has no plan that fits.",
        Kind::lines,
        "network",
        "models",
        "system",
        "speedup",
        {}};
    double best = 0, behind = kNone, more = 0;
    std::map<bool, std::int64_t> host;  // of the V100, or not: the most bytes beside it
    for (const Outcomes& o : all) {
      Panel panel{o.title, {}, {{"HFTA", {}}, {"HFTA-Capuchin", {}}, {"μ-TWO", {}}, {"μ-TWO, greedy", {}}}};
      int fits = 0, trains = 0;
      for (std::size_t i = 0; i < o.models.size(); ++i) {
        panel.places.push_back(std::to_string(o.models[i]));
        panel.series[0].values.push_back(ratio(o.hfta[i], o.hfta[i]));
        panel.series[1].values.push_back(ratio(o.hfta[i], o.capuchin[i]));
        panel.series[2].values.push_back(ratio(o.hfta[i], o.mu_two[i]));
        panel.series[3].values.push_back(ratio(o.hfta[i], o.greedy[i]));
        const double speedup = ratio(o.hfta[i], o.mu_two[i]), over = ratio(o.capuchin[i], o.mu_two[i]);
        if (speedup > best) best = speedup;
        if (!std::isnan(over)) behind = std::isnan(behind) ? over : std::min(behind, over);
        if (o.hfta[i].possible && o.hfta[i].arrays == fmt::format("({})", o.models[i])) fits = o.models[i];
        if (o.mu_two[i].possible) {
          std::int64_t& bytes = host[o.title.ends_with(mu_two_v100().name)];
          bytes = std::max(bytes, o.mu_two[i].host_bytes);
          trains = o.models[i];
        }
      }
      if (fits > 0) more = std::max(more, static_cast<double>(trains) / fits);
      figure.panels.push_back(std::move(panel));
    }
    for (const auto& [is_v100, bytes] : host) {
      const MuTwoDevice& device = is_v100 ? mu_two_v100() : mu_two_a100();
      figure.text += fmt::format(
          " What μ-TWO swaps, and models that wait for their turn, take {:.1f} GB at most of the {:.0f} GB on the host "
          "of the {}.",
          static_cast<double>(bytes) / kGb, static_cast<double>(device.host_bytes) / kGb, device.name);
    }
    add(std::move(figure));
    const std::string why =
        "a kernel's time is a roofline here, so what fusing saves is its 10 µs; the paper's gain comes from kernels that "
        "do not fill the device (see the last figure)";
    report_.claims.push_back(ratio_claim("the largest speedup over HFTA", 3, best, why));
    report_.claims.push_back(
        claim("μ-TWO is never behind HFTA-Capuchin", "in all cases", !(behind < 1 - 1e-9),
              std::isnan(behind) ? "no case" : fmt::format("the least ratio is {:.3f}", behind), ""));
    report_.claims.push_back(claim("models that train side by side, over those that fit without a plan",
                                   "3 to 5 times", more >= 3, fmt::format("{:.1f} times", more),
                                   "up to twelve models were simulated"));
  }

  void hours(const std::vector<Outcomes>& all) {
    Figure figure{"fig7",
                  "Fig. 7: hours of 10,000 iterations",
                  "BERT and ViT on the A100, all models together.",
                  Kind::bars,
                  "network",
                  "models",
                  "system",
                  "hours",
                  {}};
    for (const Outcomes& o : all) {
      if (!(o.title.starts_with("BERT, A100") || o.title.starts_with("ViT"))) continue;
      Panel panel{o.title, {}, {{"HFTA", {}}, {"μ-TWO", {}}}};
      const auto hours_of = [](const MuTwoOutcome& x) {
        return x.possible ? x.ms * kIterations / kMsPerHour : kNone;
      };
      for (std::size_t i = 0; i < o.models.size(); ++i) {
        panel.places.push_back(std::to_string(o.models[i]));
        panel.series[0].values.push_back(hours_of(o.hfta[i]));
        panel.series[1].values.push_back(hours_of(o.mu_two[i]));
      }
      figure.panels.push_back(std::move(panel));
    }
    if (!figure.panels.empty()) add(std::move(figure));
  }

  void breakdown(const std::vector<Outcomes>& all) {
    const auto share_of = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
    Figure recompute{"fig9b",
                     "Fig. 9b: share of the time that is spent computing again",
                     "BERT and ViT on the A100.",
                     Kind::bars,
                     "network",
                     "models",
                     "system",
                     "share",
                     {}};
    Figure overlap{"fig9c",
                   "Fig. 9c: share of the time of copies that computation hides",
                   "BERT and ViT on the A100.",
                   Kind::bars,
                   "network",
                   "models",
                   "system",
                   "share",
                   {}};
    Figure memory{"fig9d",
                  "Fig. 9d: peak without a plan, over the device's memory",
                  "Of all models in one array (HFTA-Capuchin), and of μ-TWO's largest array or pair.",
                  Kind::bars,
                  "network",
                  "models",
                  "system",
                  "ratio",
                  {}};
    Figure latency{"fig9a",
                   "Fig. 9a: useful computation",
                   "Without what is computed again and waits.",
                   Kind::bars,
                   "network",
                   "models",
                   "system",
                   "ms",
                   {}};
    std::vector<double> ratios, overlaps;
    for (const Outcomes& o : all) {
      if (!(o.title.starts_with("BERT, A100") || o.title.starts_with("ViT"))) continue;
      const Panel empty{o.title, {}, {{"HFTA-Capuchin", {}}, {"μ-TWO", {}}}};
      Panel a = empty, b = empty, c = empty, d = empty;
      a.series[0].name = "HFTA";
      for (std::size_t i = 0; i < o.models.size(); ++i) {
        for (Panel* p : {&a, &b, &c, &d}) p->places.push_back(std::to_string(o.models[i]));
        const MuTwoOutcome &x = o.capuchin[i], &y = o.mu_two[i];
        a.series[0].values.push_back(o.hfta[i].possible ? o.hfta[i].compute_ms : kNone);
        a.series[1].values.push_back(y.possible ? y.compute_ms : kNone);
        const auto again = [&](const MuTwoOutcome& s) {
          return s.possible ? share_of(s.recompute_ms, s.ms) : kNone;
        };
        const auto hidden = [&](const MuTwoOutcome& s) {
          return s.possible && s.swap_ms > 0 ? std::max(0.0, 1 - s.stall_ms / s.swap_ms) : kNone;
        };
        b.series[0].values.push_back(again(x));
        b.series[1].values.push_back(again(y));
        c.series[0].values.push_back(hidden(x));
        c.series[1].values.push_back(hidden(y));
        d.series[0].values.push_back(static_cast<double>(x.wanted_bytes) / 40e9);
        d.series[1].values.push_back(static_cast<double>(y.wanted_bytes) / 40e9);
        if (again(x) > 0 && !std::isnan(again(y))) ratios.push_back(again(y) / again(x));
        if (hidden(x) > 0 && !std::isnan(hidden(y))) overlaps.push_back(hidden(y) / hidden(x));
      }
      latency.panels.push_back(std::move(a));
      recompute.panels.push_back(std::move(b));
      overlap.panels.push_back(std::move(c));
      memory.panels.push_back(std::move(d));
    }
    if (latency.panels.empty()) return;
    for (Figure* f : {&latency, &recompute, &overlap, &memory}) add(std::move(*f));
    if (!ratios.empty())
      report_.claims.push_back(claim("share of recomputation, over that of HFTA-Capuchin", "less than half",
                                     mean(ratios) < 0.5, fmt::format("{:.2f} on average", mean(ratios)),
                                     "where a copy would wait, the plan computes again if that is cheaper"));
    if (!overlaps.empty())
      report_.claims.push_back(
          claim("hidden share of copies, over that of HFTA-Capuchin", "2 to 3 times", mean(overlaps) >= 2,
                fmt::format("{:.2f} times on average", mean(overlaps)),
                "Capuchin's copies here stall only where they cost less than computing again, so "
                "most of theirs are hidden too"));
  }

  const MuTwoOptions& o_;
  const SaveReport& save_;
  Report report_;
  std::map<std::string, std::unique_ptr<MuTwoSimulation>> simulations_;
};

}  // namespace

std::string mu_two_figure_help() { return fmt::format("of {}", fmt::join(MuTwoReport::kFigures, ", ")); }

Report mu_two_report(const MuTwoOptions& options, const SaveReport& save) {
  return MuTwoReport(options, save).run();
}

}  // namespace tandem::apps
