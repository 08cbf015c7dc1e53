// Figs. 4, 7, 10 and 11 from profiles of whole networks that are measured on this machine.
#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"
#include "dualpipe_profiles.h"

namespace tandem::apps {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kFew = 2, kMany = 4;        // GPUs
constexpr std::int64_t kSmallBatch = 64;  // of measurements at --scale small
constexpr double kAsModeled = 0.95;       // of the cost model's gain, which a real run must reach

const std::string kDualPipe = kDualPipeSchemes[kSpecTrain].timed_as,
                  kSingleIssue = kDualPipeSchemes[kPipeDream].timed_as,
                  kDataParallel = kDualPipeSchemes[kData].timed_as;

// A network with what the simulator makes of its profiles.
struct Measured {
  MeasuredNetwork network;
  std::map<int, SchemeOutcomes> outcomes;  // by GPUs

  double gain(int gpus, const std::string& over) const {
    return outcomes.at(gpus).at(over).period_ms / outcomes.at(gpus).at(kDualPipe).period_ms;
  }
  double real_gain() const {
    return network.runs.at(kSingleIssue).batch_ms / network.runs.at(kDualPipe).batch_ms;
  }
  // The time of a batch of the real run over that of the simulated one.
  double real_over_simulated(const std::string& scheme) const {
    return network.runs.at(scheme).batch_ms / outcomes.at(kFew).at(scheme).period_ms;
  }
  // The same of the time in which the stages compute.
  double real_over_profiled(const std::string& scheme) const {
    return real_over_simulated(scheme) * network.runs.at(scheme).busy /
           outcomes.at(kFew).at(scheme).shares.busy;
  }
};

// A number of each network.
template <class F> std::vector<double> by_network(const std::vector<Measured>& all, F number) {
  std::vector<double> result;
  for (const Measured& m : all) result.push_back(number(m));
  return result;
}

std::string range_text(const std::vector<double>& values) {
  const Range range = range_of(values);
  return fmt::format("{:.2f} to {:.2f}", range.least, range.most);
}

// ---- figures ---------------------------------------------------------------------------------------

Figure fig4(const std::vector<Measured>& all, const std::string& how) {
  Panel panel{"", {}, {{kDataParallel, {}}}};
  for (const Measured& m : all) {
    panel.places.push_back(m.network.title);
    panel.series[0].values.push_back(100 * m.outcomes.at(kMany).at(kDataParallel).shares.transfer);
  }
  return {"fig4",
          "Fig. 4: share of communication with data parallelism",
          "On four GPUs. " + how,
          Figure::Kind::bars,
          "",
          "network",
          "scheme",
          "% of the time",
          {panel}};
}

Figure fig7(const std::vector<Measured>& all, const std::string& how) {
  Panel panel{"", {}, {{"forward", {}}, {"backward", {}}}};
  for (const Measured& m : all) {
    panel.places.push_back(m.network.title);
    panel.series[0].values.push_back(1);
    panel.series[1].values.push_back(m.network.backward_ratio());
  }
  return {"fig7",
          "Fig. 7: time of backward over that of forward",
          how + " Backward has the updates.",
          Figure::Kind::bars,
          "",
          "network",
          "pass",
          "time over forward",
          {panel}};
}

const std::string kRuns =
    " Those marked as run are real lockstep runs on two stages of this machine, with the cuts of the profiles; the "
    "stages share its cores. All others are simulated.";

std::string run_of(const std::string& scheme) { return scheme + ", run"; }

Figure fig10(const std::vector<Measured>& all, const std::string& how) {
  Figure figure = throughput_figure("fig10-measured", "Fig. 10, measured: throughput", how + kRuns);
  Panel panel;
  for (const std::size_t s : kTimedSchemes) panel.series.push_back({kDualPipeSchemes[s].timed_as, {}});
  for (const std::size_t s : kTimedPipelines)
    panel.series.push_back({run_of(kDualPipeSchemes[s].timed_as), {}});
  for (const Measured& m : all)
    for (const auto& [gpus, outcomes] : m.outcomes) {
      panel.places.push_back(fmt::format("{}, {}", m.network.title, gpus));
      auto series = panel.series.begin();
      for (const std::size_t s : kTimedSchemes)
        (series++)->values.push_back(m.network.single_ms() /
                                     outcomes.at(kDualPipeSchemes[s].timed_as).period_ms);
      for (const std::size_t s : kTimedPipelines)
        (series++)->values.push_back(
            gpus == kFew ? m.network.single_ms() / m.network.runs.at(kDualPipeSchemes[s].timed_as).batch_ms
                         : kNone);
    }
  figure.panels.push_back(std::move(panel));
  return figure;
}

// Adds the bars of the real runs. What their stages wait for is not measured.
void add_runs(Panel& panel, const Measured& m) {
  for (const std::size_t s : kTimedPipelines) {
    const RealRun& run = m.network.runs.at(kDualPipeSchemes[s].timed_as);
    const double part = run.batch_ms / m.outcomes.at(kFew).at(kDataParallel).period_ms;
    panel.places.push_back(run_of(kDualPipeSchemes[s].timed_as));
    for (Series& series : panel.series) series.values.push_back(0);
    panel.series.front().values.back() = part * run.busy;
    panel.series.back().values.back() = part * (1 - run.busy);
  }
}

Figure fig11(const std::vector<Measured>& all, const std::string& how) {
  Figure figure = breakdown_figure(
      "fig11-measured", "Fig. 11, measured: where the time of a batch goes",
      how + kRuns + " Of a run only computing is measured; its other time is one part, idle for any reason.");
  for (const Measured& m : all)
    for (const auto& [gpus, outcomes] : m.outcomes) {
      Panel& panel =
          figure.panels.emplace_back(breakdown_panel(fmt::format("{}, {}", m.network.title, gpus), outcomes));
      panel.series.push_back({"idle, run", std::vector<double>(panel.places.size(), 0)});
      if (gpus == kFew) add_runs(panel, m);
    }
  return figure;
}

// ---- claims ----------------------------------------------------------------------------------------

// β: the mean load of a stage over the largest.
double balance(const StageProfile& profile) {
  double largest = 0;
  for (const StageCost& s : profile.stages) largest = std::max(largest, s.total_ms());
  return profile.batch_ms() / largest / static_cast<double>(profile.stages.size());
}

// The share of communication of Data P., if batches were the paper's and took as long per image.
double share_at_paper_batch(const Measured& m, std::int64_t batch) {
  const engine::DeviceShares& shares = m.outcomes.at(kMany).at(kDataParallel).shares;
  const double computing = shares.busy * kPaperBatch / static_cast<double>(batch);
  return shares.transfer / (shares.transfer + computing);
}

void add_profile_claims(const std::vector<Measured>& all, std::int64_t batch, std::vector<Claim>& claims) {
  const auto transfer = [](const Measured& m) {
    return m.outcomes.at(kMany).at(kDataParallel).shares.transfer;
  };
  const auto backward = [](const Measured& m) { return m.network.backward_ratio(); };
  const Measured &sends = *std::ranges::max_element(all, {}, transfer),
                 &back = *std::ranges::max_element(all, {}, backward);
  claims.push_back(share_claim(
      fmt::format("Fig. 4, measured: share of communication with Data P., at most (here: {})",
                  sends.network.title),
      0.766, transfer(sends),
      fmt::format(
          "What is reduced does not depend on the batch. At the paper's batch of {} instead of {}, if computing "
          "took as long per image, the share would be {}.",
          kPaperBatch, batch, share(share_at_paper_batch(sends, batch)))));
  claims.push_back(ratio_claim(
      fmt::format("Fig. 7: time of backward over that of forward, at most (here: {})", back.network.title),
      3.3, backward(back),
      fmt::format(
          "Measured on a core. The updates are {:.2f} of this ratio. By operations, backward is at most twice "
          "forward; the rest is probably memory traffic. The paper's GPU was not measured.",
          back.network.update_ratio())));
}

// The largest gain of DualPipe on four GPUs.
const Measured& best_over(const std::vector<Measured>& all, const std::string& scheme) {
  return *std::ranges::max_element(all, {}, [&](const Measured& m) { return m.gain(kMany, scheme); });
}

// 2·max(1, r)/(1 + r): what equal stages would gain over PipeDream at ρ = 1.
double gain_of_equal_stages(const Measured& m) {
  const double r = m.network.backward_ratio();
  return 2 * std::max(1.0, r) / (1 + r);
}

void add_largest_gains(const std::vector<Measured>& all, std::vector<Claim>& claims) {
  const Measured &data = best_over(all, kDataParallel), &single_issue = best_over(all, kSingleIssue);
  claims.push_back(ratio_claim(
      fmt::format("Fig. 10, measured: DualPipe over Data P., 4 GPUs, at most (here: {})", data.network.title),
      15.77, data.gain(kMany, kDataParallel),
      fmt::format("With Data P. it communicates for {} of the time.",
                  share(data.outcomes.at(kMany).at(kDataParallel).shares.transfer))));
  claims.push_back(
      ratio_claim(fmt::format("Fig. 10, measured: DualPipe over PipeDream, 4 GPUs, at most (here: {})",
                              single_issue.network.title),
                  2.18, single_issue.gain(kMany, kSingleIssue),
                  fmt::format("Equal stages with its B/F of {:.2f} would give {} at ρ = 1; its ρ is {:.2f}.",
                              single_issue.network.backward_ratio(),
                              times(gain_of_equal_stages(single_issue)), single_issue.network.corun())));
}

void add_throughput_claims(const std::vector<Measured>& all, std::vector<Claim>& claims) {
  const auto beta = [](const std::string& scheme) {
    return [scheme](const Measured& m) { return balance(m.network.profiles.at(kMany).at(scheme)); };
  };
  const double without_transfers = geometric_mean(by_network(all, [](const Measured& m) {
    return m.gain(kMany, kDataParallel) * m.outcomes.at(kMany).at(kDataParallel).shares.busy;
  }));
  claims.push_back(ratio_claim(
      "Fig. 10, measured: DualPipe over Data P., 4 GPUs, geometric mean", 2.64,
      geometric_mean(by_network(all, [](const Measured& m) { return m.gain(kMany, kDataParallel); })),
      fmt::format("If Data P. sent nothing, it would be {}; Fig. 4 has the share of what it sends.",
                  times(without_transfers))));
  const double equal_stages = geometric_mean(by_network(all, gain_of_equal_stages));
  claims.push_back(ratio_claim(
      "Fig. 10, measured: DualPipe over PipeDream, 4 GPUs, geometric mean", 1.68,
      geometric_mean(by_network(all, [](const Measured& m) { return m.gain(kMany, kSingleIssue); })),
      fmt::format(
          "Equal stages with the measured B/F would give {} at ρ = 1; here ρ is {}, and β, the mean over the "
          "largest load of a stage, is {} for DualPipe's cuts and {} for PipeDream's.",
          times(equal_stages),
          range_text(by_network(all, [](const Measured& m) { return m.network.corun(); })),
          range_text(by_network(all, beta(kDualPipe))), range_text(by_network(all, beta(kSingleIssue))))));
  add_largest_gains(all, claims);
}

void add_run_claim(const std::vector<Measured>& all, std::vector<Claim>& claims) {
  const auto slower = [&](const std::string& scheme) {
    return geometric_mean(by_network(all, [&](const Measured& m) { return m.real_over_simulated(scheme); }));
  };
  const auto computes_longer = [&](const std::string& scheme) {
    return geometric_mean(by_network(all, [&](const Measured& m) { return m.real_over_profiled(scheme); }));
  };
  const double modeled = geometric_mean(
                   by_network(all, [](const Measured&m) { return m.gain(kFew, kSingleIssue); })),
               real = geometric_mean(by_network(all, [](const Measured&m) { return m.real_gain(); }));
  claims.push_back(claim(
      fmt::format(
          "Real runs on two stages: DualPipe over PipeDream, geometric mean (expected: at least {} of the cost "
          "model's)",
          kAsModeled),
      times(modeled), real >= kAsModeled * modeled, times(real),
      fmt::format(
          "A batch of a run takes {} as long as simulated under PipeDream and {} under DualPipe. The stages compute "
          "{} and {} as long as profiled: profiles are measured while the other core is idle, and under DualPipe "
          "both cores compute almost all the time.",
          times(slower(kSingleIssue)), times(slower(kDualPipe)), times(computes_longer(kSingleIssue)),
          times(computes_longer(kDualPipe)))));
}

std::string cuts_csv(const std::vector<Measured>& all) {
  std::string text = "network,GPUs,scheme,stages begin at\n";
  for (const Measured& m : all)
    for (const auto& [gpus, schemes] : m.network.cuts)
      for (const auto& [scheme, cuts] : schemes)
        text += fmt::format("{},{},{},{}\n", m.network.title, gpus, scheme, fmt::join(cuts, " "));
  return text;
}

}  // namespace

void add_measured(const DualPipeRun& run, Report& report) {
  const DualPipeData data = read_data(run);
  const std::int64_t batch = run.batch(kSmallBatch);
  std::vector<Measured> all;
  for (const DualPipeNetwork& network : run.networks) {
    Measured& m = all.emplace_back(Measured{measure(network, data.of(network), batch, {kFew, kMany}), {}});
    for (const auto& [gpus, profiles] : m.network.profiles) m.outcomes[gpus] = scheme_outcomes(profiles);
  }
  const std::string how = fmt::format(
      "Whole networks with batches of {}, measured here by one thread: a device is one core of this machine, and its "
      "link is as much slower than PCIe 3.0 x16 as it is slower than a Tesla P40 (by operations per second). Each "
      "scheme has the cuts that are best for it by the measured kernels (measured-cuts.csv); the paper's DualPipe has "
      "PipeDream's.",
      batch);
  for (const auto& figure : {fig4, fig7, fig10, fig11}) report.figures.push_back(figure(all, how));
  report.files.emplace_back("measured-cuts.csv", cuts_csv(all));
  for (const Measured& m : all)
    for (const auto& [gpus, profiles] : m.network.profiles)
      for (const auto& [scheme, profile] : profiles)
        report.files.emplace_back(fmt::format("{}-{}-stages-{}.json", m.network.title, gpus, scheme),
                                  to_json(profile));
  add_profile_claims(all, batch, report.claims);
  add_throughput_claims(all, report.claims);
  add_run_claim(all, report.claims);
}

}  // namespace tandem::apps
