// Figs. 10 and 11 from profiles that the paper's averages determine, by the cost model of the simulator.
#include "dualpipe_families.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <tandem/pipeline/schedules.h>

#include "claims.h"
#include "dualpipe_run.h"
#include "dualpipe_schemes.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr int kGpus = 4;
constexpr double kBalance = 0.885;                     // β: mean over largest load of a stage
constexpr double kCorun = 0.86;                        // ρ
constexpr double kMoreComputing = 0.611;               // of Data P. on four GPUs
constexpr double kTransferRatio = 13.4;                // of what Data P. sends to what a pipeline sends
constexpr double kSingleMs = 100, kBytesPerMs = 12e6;  // PCIe 3.0 x16
constexpr std::int64_t kBatches = 200;

// A batch of 1/N takes (1 + a(N − 1))/N of the time of a whole one.
double data_compute_factor(int gpus) { return 1 + kMoreComputing / (kGpus - 1) * (gpus - 1); }

// Of all GPUs, with Data P. on four.
double weight_bytes(const NetworkFamily& family) {
  const double compute_ms = data_compute_factor(kGpus) * kSingleMs / kGpus;
  const double sync_ms = compute_ms * family.sync_share / (1 - family.sync_share);
  return sync_ms * kBytesPerMs * kGpus / (2.0 * (kGpus - 1));
}

}  // namespace

const std::vector<NetworkFamily>& network_families() {
  // The P2P share of the CNNs follows from those of all six and of the other three.
  static const std::vector<NetworkFamily> families{
      {"all six", 2.6, 0.267}, {"CNN", 1.9, 2 * 0.267 - 0.498}, {"FCN + RNN", 3.3, 0.498}};
  return families;
}

StageProfile family_profile(const NetworkFamily& family, int gpus) {
  const double r = family.backward_ratio, largest = kSingleMs / (gpus * kBalance);
  const int large = gpus / 2;
  const double others = (kSingleMs - large * largest) / (gpus - large);
  const double weights = weight_bytes(family);
  StageProfile profile{
      .link = {.bytes_per_ms = kBytesPerMs},
      .corun = kCorun,
      .uncut = UncutCost{
          .single_ms = kSingleMs, .data_compute_factor = data_compute_factor(gpus), .sync_bytes = weights}};
  for (int k = 0; k < gpus; ++k) {
    const double load = k < large ? largest : others;
    profile.stages.push_back(
        {load / (1 + r), load * r / (1 + r), k + 1 < gpus ? weights / kTransferRatio : 0, weights / gpus});
  }
  return profile;
}

SchemeOutcomes scheme_outcomes(const SchemeProfiles& profiles) {
  const StageProfile& any = profiles.begin()->second;
  const int n = static_cast<int>(any.stages.size());
  SchemeOutcomes outcomes{{"Single GPU", single_device(any)},
                          {kDualPipeSchemes[kData].timed_as, data_parallel(any)}};
  for (const std::size_t s : kTimedPipelines) {
    const DualPipeScheme& scheme = kDualPipeSchemes[s];
    outcomes[scheme.timed_as] =
        simulate_pipeline(profiles.at(scheme.timed_as),
                          make_schedule(scheme.schedule, {.stages = n, .lockstep = true}), kBatches);
  }
  return outcomes;
}

SchemeOutcomes scheme_outcomes(const StageProfile& profile) {
  SchemeProfiles same;
  for (const std::size_t s : kTimedPipelines) same[kDualPipeSchemes[s].timed_as] = profile;
  return scheme_outcomes(same);
}

Panel breakdown_panel(const std::string& name, const SchemeOutcomes& outcomes) {
  Panel panel{
      name, {}, {{"computing", {}}, {"P2P transfer", {}}, {"P2P-induced idle", {}}, {"imbalance idle", {}}}};
  const double data_ms = outcomes.at("Data P.").period_ms;
  for (const std::size_t s : kTimedSchemes) {
    const std::string scheme = kDualPipeSchemes[s].timed_as;
    const PipelineSimulation& o = outcomes.at(scheme);
    panel.places.push_back(scheme);
    const double part = o.period_ms / data_ms;
    panel.series[0].values.push_back(part * o.shares.busy);
    panel.series[1].values.push_back(part * o.shares.transfer);
    panel.series[2].values.push_back(part * o.shares.transfer_idle);
    panel.series[3].values.push_back(part * o.shares.imbalance_idle);
  }
  return panel;
}

Figure throughput_figure(const std::string& id, const std::string& title, const std::string& text) {
  return {id, title, text, Figure::Kind::bars, "", "network, GPUs", "scheme", "throughput over a single GPU",
          {}};
}

Figure breakdown_figure(const std::string& id, const std::string& title, const std::string& text) {
  return {id,        title,    text,   Figure::Kind::stacked_bars,
          "network", "scheme", "part", "time over that of Data P.",
          {}};
}

namespace {

struct FamilyOutcomes {
  std::vector<SchemeOutcomes> four;  // by family
  double gain(std::size_t family, const std::string& over) const {
    return four[family].at(over).period_ms / four[family].at("DualPipe").period_ms;
  }
  double both(const std::string& over) const {  // the CNNs and the others are three networks each
    return geometric_mean({gain(kCnn, over), gain(kOther, over)});
  }
  const DeviceShares& shares(const std::string& scheme) const { return four[kAll].at(scheme).shares; }
};

// The factor of Data P.'s computing time with which a family would have the paper's gain.
double fitting_factor(const FamilyOutcomes& o, std::size_t family, double gain) {
  const PipelineSimulation& data = o.four[family].at("Data P.");
  return data.shares.busy * gain * o.four[family].at("DualPipe").period_ms * kGpus / kSingleMs;
}

void add_throughput(const FamilyOutcomes& o, std::vector<Claim>& claims) {
  const std::string factor = fmt::format(
      "The paper prints {:.1f} % more computing time of Data P. for all six networks together, and each family has "
      "that here. {:.1f} % for the CNNs and {:.1f} % for the others would give the paper's gains.",
      100 * kMoreComputing, 100 * (fitting_factor(o, kCnn, 1.213) - 1),
      100 * (fitting_factor(o, kOther, 5.817) - 1));
  claims.push_back(ratio_claim("Fig. 10, fitted: throughput, DualPipe over Data P., 4 GPUs, CNN", 1.213,
                               o.gain(kCnn, "Data P."), factor));
  claims.push_back(ratio_claim("the same, FCN + RNN", 5.817, o.gain(kOther, "Data P."), "As above."));
  claims.push_back(ratio_claim("the same, geometric mean of both", 2.64, o.both("Data P."),
                               "As above: the two do not cancel."));
  claims.push_back({"Fig. 10, fitted: throughput, DualPipe over PipeDream, 4 GPUs, CNN", times(1.517),
                    times(o.gain(kCnn, "PipeDream")), Verdict::given, "r of the CNNs is set from it."});
  claims.push_back(ratio_claim("the same, FCN + RNN", 1.849, o.gain(kOther, "PipeDream"),
                               "r is 3.3, the largest of Fig. 7; 3.9 would give the paper's number."));
  claims.push_back(ratio_claim("the same, geometric mean of both", 1.68, o.both("PipeDream"), "As above."));
  claims.push_back(ratio_claim("the same, with one r = 2.6 for all six", 1.68, o.gain(kAll, "PipeDream"),
                               "2r/(1 + r)/ρ, less what transfers hold up."));
  const double single = o.four[kOther].at("Single GPU").period_ms / o.four[kOther].at("Data P.").period_ms;
  claims.push_back(ratio_claim(
      "Fig. 10, fitted: throughput, Data P. over a single GPU, 4 GPUs, FCN + RNN", 0.385, single,
      "With the paper's gain of 5.82, its DualPipe is 0.385 · 5.82 = 2.24 times as fast as a single GPU. Stages "
      "that together take as long as the whole network would be 4β/ρ = 4.1 times as fast. So its cut networks "
      "take longer than whole ones, which this profile leaves out."));
}

// A unit has one transfer per link and direction, and each has an end at two GPUs. Returns at how many of
// these ends the GPU does not compute meanwhile, if that takes this share of the time of all GPUs.
double exposed_ends(const FamilyOutcomes& o, const std::string& scheme, double share) {
  const StageProfile profile = family_profile(network_families()[kAll], kGpus);
  const double transfer_ms = profile.stages[0].activation_bytes / profile.link.bytes_per_ms;
  return share * kGpus * o.four[kAll].at(scheme).period_ms / transfer_ms;
}

Claim p2p_claim(const FamilyOutcomes& o, const std::string& asked, const std::string& scheme, double paper,
                const std::string& why) {
  const double p2p = o.shares(scheme).transfer + o.shares(scheme).transfer_idle;
  return share_claim(
      asked, paper, p2p,
      fmt::format("{} Of the {} ends of a unit's transfers, {:.1f} are at a GPU that does not "
                  "compute meanwhile; the paper's share would be that of {:.1f}. It is a mean "
                  "of six networks, and this profile has their mean bytes.",
                  why, 4 * (kGpus - 1), exposed_ends(o, scheme, p2p), exposed_ends(o, scheme, paper)));
}

void add_breakdown(const FamilyOutcomes& o, std::vector<Claim>& claims) {
  const DeviceShares &data = o.shares("Data P."), &pipedream = o.shares("PipeDream"),
                     &dualpipe = o.shares("DualPipe");
  claims.push_back({"Fig. 11, fitted: P2P share of Data P.", "26.7 %",
                    share(data.transfer + data.transfer_idle), Verdict::given,
                    "The bytes that it reduces are set from it."});
  claims.push_back(p2p_claim(o, "Fig. 11, fitted: P2P share of PipeDream", "PipeDream", 0.019,
                             "A GPU whose tick ends early waits while the bytes that it made move."));
  claims.push_back(
      p2p_claim(o, "the same, DualPipe", "DualPipe", 0.022,
                "Most bytes move while the GPUs at both ends compute, with two tasks per unit."));
  const double r = network_families()[kAll].backward_ratio;
  claims.push_back(share_claim(
      "Fig. 11, fitted: imbalance idle of PipeDream", 0.386, pipedream.imbalance_idle,
      fmt::format("Without transfers it would be 1 − β(1 + r)/(2r) = {}; while bytes move, it is P2P.",
                  share(1 - kBalance * (1 + r) / (2 * r)))));
  claims.push_back(share_claim(
      "the same, DualPipe", 0.115, dualpipe.imbalance_idle,
      fmt::format(
          "1 − β is 11.5 %. But the last GPU runs F and B of one batch one after the other (ρ = 1), so "
          "it is busy for longer than the others with the same load, and all GPUs are idle for {}. "
          "Bytes move in {} of the time, which is P2P.",
          share(1 - dualpipe.busy), share(dualpipe.transfer + dualpipe.transfer_idle))));
}

}  // namespace

void add_families(const DualPipeRun&, Report& report) {
  Figure fig10 = throughput_figure(
      "fig10", "Fig. 10, fitted: throughput",
      fmt::format(
          "Simulated from profiles with the paper's averages: mean load of a stage over the largest "
          "β = {}, ρ = {} for F beside B, r = B/F by family. Data P. computes for {:.1f} % longer on four GPUs "
          "(affine in the part of the batch), and then reduces on a ring; its P2P share on four GPUs is the "
          "paper's.",
          kBalance, kCorun, 100 * kMoreComputing));
  Figure fig11 = breakdown_figure("fig11", "Fig. 11, fitted: where the time of a batch goes",
                                  "From the same profiles. The paper has four GPUs.");
  Panel panel;
  for (const std::size_t s : kTimedSchemes) panel.series.push_back({kDualPipeSchemes[s].timed_as, {}});
  FamilyOutcomes outcomes;
  for (const NetworkFamily& family : network_families())
    for (const int gpus : {2, kGpus}) {
      const SchemeOutcomes o = scheme_outcomes(family_profile(family, gpus));
      panel.places.push_back(fmt::format("{}, {}", family.title, gpus));
      for (Series& s : panel.series)
        s.values.push_back(o.at("Single GPU").period_ms / o.at(s.name).period_ms);
      fig11.panels.push_back(breakdown_panel(panel.places.back(), o));
      if (gpus == kGpus) outcomes.four.push_back(o);
    }
  fig10.panels.push_back(std::move(panel));
  report.figures.push_back(std::move(fig10));
  report.figures.push_back(std::move(fig11));
  add_throughput(outcomes, report.claims);
  add_breakdown(outcomes, report.claims);
}

}  // namespace tandem::apps
