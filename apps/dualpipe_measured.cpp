// Figs. 3, 4, 7, 10 and 11 from profiles of whole networks that are measured on this machine.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/runtime/profile.h>
#include <tandem/plan/build.h>
#include <tandem/plan/measured_stages.h>
#include <tandem/plan/network_layers.h>
#include <tandem/train/objective.h>

#include "claims.h"
#include "dualpipe_families.h"
#include "dualpipe_schemes.h"
#include "dualpipe_training.h"
#include "log.h"
#include "measured_feed.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kFew = 2, kMany = 4;            // GPUs
constexpr std::int64_t kSmallBatch = 64;      // of measurements at --scale small
constexpr std::int64_t kRealIterations = 16;  // of a run on two stages
// PCIe 3.0 x16 and the Tesla P40 of the paper: bytes and multiplications and additions per second.
constexpr double kLinkBytes = 15.75e9, kGpuFlops = 11.76e12;

// A network with its weights, traced for a batch.
struct Traced {
  std::unique_ptr<nn::Module> module;
  const Dataset& data;
  Graph forward(std::int64_t samples) const {
    return trace_forward(*module, data, classification(), samples, true);
  }
};

Traced traced(const DualPipeNetwork& network, const DualPipeImages& images) {
  Traced result{network.whole(), *images.train};
  result.module->initialize(1);
  return result;
}

// Every instruction by one thread.
Strategy strategy_for(const Traced& network, int stages, std::int64_t batch) {
  Strategy strategy{.stages = stages, .schedule = "dualpipe", .optimizer = SgdOptions{.momentum = 0.9}};
  strategy.cuts = balanced_cuts(network.forward(batch), strategy);
  return strategy;
}

double flops_of(const Program& program) {
  double flops = 0;
  for (const Instruction& s : program.instructions)
    if (s.op) flops += s.op->cost(s.inputs, s.outputs).flops;
  return flops;
}

// ---- Fig. 3 ----------------------------------------------------------------------------------------

struct Sent {
  double data = 0, pipeline = 0;  // bytes between all devices, per batch
};

Sent sent(const DualPipeNetwork& network, const DualPipeImages& images, std::int64_t batch) {
  const Traced net = traced(network, images);
  Strategy strategy = strategy_for(net, kMany, batch);
  strategy.kernels = nullptr;  // it does not run
  Sent result;
  for (const StageCost& stage : stage_costs(build(net.forward(batch), strategy))) {
    result.data += 2.0 * (kMany - 1) * stage.weight_bytes;
    result.pipeline += 2 * stage.activation_bytes;
  }
  return result;
}

}  // namespace

void add_transfers(const DualPipeRun& run, Report& report) {
  const DualPipeImages images = read_images(run);
  const std::int64_t batch = run.batch(kPaperBatch);
  Panel panel{"", {}, {{"Data P.", {}}, {"pipeline", {}}}};
  std::vector<double> ratios;
  for (const DualPipeNetwork& network : run.networks) {
    const Sent bytes = sent(network, images, batch);
    panel.places.push_back(network.title);
    panel.series[0].values.push_back(bytes.data / 1e6);
    panel.series[1].values.push_back(bytes.pipeline / 1e6);
    ratios.push_back(bytes.data / bytes.pipeline);
  }
  report.figures.push_back(
      {"fig3",
       "Fig. 3: what four GPUs send per batch",
       fmt::format("From the Programs of the whole networks, with batches of {}: a ring all-reduce of all "
                   "gradients, and activations and their gradients over three cuts of about equal work.",
                   batch),
       Figure::Kind::bars,
       "",
       "network",
       "parallelization",
       "MB",
       {panel}});
  report.claims.push_back(ratio_claim("Fig. 3: what Data P. sends over what a pipeline sends, at most (SNN)",
                                      528, range_of(ratios).most,
                                      "The paper does not print its batch's cuts."));
  report.claims.push_back(ratio_claim("the same, geometric mean", 13.4, geometric_mean(ratios),
                                      "Of these networks alone, which are not the paper's six."));
}

// ---- profiles --------------------------------------------------------------------------------------

namespace {

struct Measured {
  std::string title;
  std::map<int, StageProfile> profiles;  // by GPUs
  std::map<std::string, double> run_ms;  // by scheme: a batch of a real run on two stages
  double backward_ratio() const {
    double forward = 0, backward = 0;
    for (const StageCost& s : profiles.at(kMany).stages) forward += s.forward_ms, backward += s.backward_ms;
    return backward / forward;
  }
};

StageProfile stages_on(const Traced& net, const DualPipeImages& images, std::int64_t batch, int gpus) {
  const Program program = build(net.forward(batch), strategy_for(net, gpus, batch));
  TrainFeed host = measured_feed(images.train, batch);
  Profile profile;
  profile.measure(program, cpu_kernels(), host, net.module->state());
  return {.stages = stage_costs(with_costs(program, profile))};
}

Measured measure(const DualPipeRun& run, const DualPipeNetwork& network, const DualPipeImages& images) {
  const std::int64_t batch = run.batch(kSmallBatch);
  const Traced net = traced(network, images);
  const Strategy strategy = strategy_for(net, kFew, batch);
  const auto batch_ms = [&](std::int64_t samples) {
    TrainFeed host = measured_feed(images.train, samples);
    return measured_batch_ms(net.forward(samples), strategy, host, net.module->state());
  };
  const double single_ms = batch_ms(batch);
  TrainFeed host = measured_feed(images.train, batch);
  const double corun = measured_corun(net.forward(batch), strategy, host, net.module->state(), 1);
  const double flops_per_ms = flops_of(build(net.forward(batch), strategy)) / single_ms;
  Measured result{network.title, {}, {}};
  for (const int gpus : {kFew, kMany}) {
    StageProfile& profile = result.profiles[gpus] = stages_on(net, images, batch, gpus);
    profile.corun = corun;
    profile.link.bytes_per_ms = flops_per_ms * kLinkBytes / kGpuFlops;
    profile.uncut =
        UncutCost{single_ms, gpus * batch_ms(std::max<std::int64_t>(1, batch / gpus)) / single_ms, 0};
    for (const StageCost& stage : profile.stages) profile.uncut->sync_bytes += stage.weight_bytes;
  }
  for (const std::size_t s : kTimedPipelines) {
    const DualPipeScheme& scheme = kDualPipeSchemes[s];
    DualPipeJob job{.network = network.whole(), .schedule = scheme.schedule, .stages = kFew};
    job.batch_size = batch;
    job.iterations = kRealIterations;
    job.lockstep = true;
    result.run_ms[scheme.timed_as] = train(std::move(job), {images.train, {}}).step_ms;
  }
  log_info(fmt::format("{}: {:.0f} ms on one device, B/F {:.2f}, corun {:.2f}", network.title, single_ms,
                       result.backward_ratio(), corun));
  return result;
}

// ---- figures ---------------------------------------------------------------------------------------

Figure fig4(const std::vector<Measured>& all, const std::string& how) {
  Panel panel{"", {}, {{"Data P.", {}}}};
  for (const Measured& m : all) {
    panel.places.push_back(m.title);
    panel.series[0].values.push_back(100 * data_parallel(m.profiles.at(kMany)).shares.transfer);
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
    panel.places.push_back(m.title);
    panel.series[0].values.push_back(1);
    panel.series[1].values.push_back(m.backward_ratio());
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

Figure fig10(const std::vector<Measured>& all, const std::string& how) {
  Figure figure = throughput_figure(
      "fig10-measured", "Fig. 10, measured: throughput",
      how +
          " Those marked as run are real lockstep runs on two stages of this machine, which share its cores; all "
          "others are simulated.");
  Panel panel;
  for (const std::size_t s : kTimedSchemes) panel.series.push_back({kDualPipeSchemes[s].timed_as, {}});
  for (const std::size_t s : kTimedPipelines)
    panel.series.push_back({fmt::format("{}, run", kDualPipeSchemes[s].timed_as), {}});
  for (const Measured& m : all)
    for (const auto& [gpus, profile] : m.profiles) {
      panel.places.push_back(fmt::format("{}, {}", m.title, gpus));
      const SchemeOutcomes outcomes = scheme_outcomes(profile);
      const double single_ms = profile.uncut->single_ms;
      auto series = panel.series.begin();
      for (const std::size_t s : kTimedSchemes)
        (series++)->values.push_back(single_ms / outcomes.at(kDualPipeSchemes[s].timed_as).period_ms);
      for (const std::size_t s : kTimedPipelines)
        (series++)->values.push_back(gpus == kFew ? single_ms / m.run_ms.at(kDualPipeSchemes[s].timed_as)
                                                  : kNone);
    }
  figure.panels.push_back(std::move(panel));
  return figure;
}

Figure fig11(const std::vector<Measured>& all, const std::string& how) {
  Figure figure = breakdown_figure("fig11-measured", "Fig. 11, measured: where the time of a batch goes",
                                   "Simulated on four GPUs. " + how);
  for (const Measured& m : all)
    figure.panels.push_back(breakdown_panel(m.title, scheme_outcomes(m.profiles.at(kMany))));
  return figure;
}

// ---- claims ----------------------------------------------------------------------------------------

// What the cost model says of the gain of DualPipe over PipeDream in lockstep: Σ of PipeDream's two units
// over DualPipe's, from F and B of the stages alone.
double modeled_gain(const StageProfile& profile) {
  double even = 0, odd = 0, dual = 0;
  for (std::size_t k = 0; k < profile.stages.size(); ++k) {
    const auto& [f, b, activations, weights] = profile.stages[k];
    const bool last = k + 1 == profile.stages.size();
    even = std::max(even, k % 2 == 0 ? f : b);
    odd = std::max(odd, k % 2 == 0 ? b : f);
    dual = std::max({dual, f, b, (last ? 1 : profile.corun) * (f + b)});
  }
  return (even + odd) / dual;
}

// β: the mean load of a stage over the largest.
double balance(const StageProfile& profile) {
  double largest = 0;
  for (const StageCost& s : profile.stages) largest = std::max(largest, s.forward_ms + s.backward_ms);
  return profile.batch_ms() / largest / static_cast<double>(profile.stages.size());
}

void add_claims(const std::vector<Measured>& all, std::vector<Claim>& claims) {
  const std::string device =
      "A core computes F and B of these networks, not a GPU; small products and updates cost more here.";
  const std::string bytes =
      "The link is set by operations per second alone. What is reduced does not depend on the batch: smaller batches, "
      "and networks that wait for memory rather than compute, spend more of their time on it.";
  std::vector<double> coruns, balances, shares, backward, over_data, over_pipedream, real, modeled;
  for (const Measured& m : all) {
    const SchemeOutcomes o = scheme_outcomes(m.profiles.at(kMany));
    shares.push_back(o.at("Data P.").shares.transfer);
    backward.push_back(m.backward_ratio());
    coruns.push_back(m.profiles.at(kMany).corun);
    balances.push_back(balance(m.profiles.at(kMany)));
    over_data.push_back(o.at("Data P.").period_ms / o.at("DualPipe").period_ms);
    over_pipedream.push_back(o.at("PipeDream").period_ms / o.at("DualPipe").period_ms);
    real.push_back(m.run_ms.at("PipeDream") / m.run_ms.at("DualPipe"));
    modeled.push_back(modeled_gain(m.profiles.at(kFew)));
  }
  claims.push_back(share_claim("Fig. 4, measured: share of communication with Data P., at most", 0.766,
                               range_of(shares).most, bytes));
  claims.push_back(ratio_claim("Fig. 7: time of backward over that of forward, at most", 3.3,
                               range_of(backward).most, device));
  claims.push_back(ratio_claim("Fig. 10, measured: DualPipe over Data P., 4 GPUs, geometric mean", 2.64,
                               geometric_mean(over_data), bytes));
  claims.push_back(ratio_claim(
      "Fig. 10, measured: DualPipe over PipeDream, 4 GPUs, geometric mean", 1.68,
      geometric_mean(over_pipedream),
      fmt::format(
          "Other networks. ρ is {:.2f} to {:.2f} here, and the automatic cuts balance them badly: β, mean "
          "over largest load of a stage, is {:.2f} to {:.2f}.",
          range_of(coruns).least, range_of(coruns).most, range_of(balances).least, range_of(balances).most)));
  const double ours = geometric_mean(real), model = geometric_mean(modeled);
  const Verdict verdict = compared({model, model}, {ours, ours});
  claims.push_back(
      {"Real runs on two stages: DualPipe over PipeDream, geometric mean (expected: the cost model)",
       times(model), times(ours), verdict,
       verdict == Verdict::agrees
           ? ""
           : "Runs share the cores and the memory of this machine with each other and with other programs, "
             "and DualPipe computes predictions too."});
}

}  // namespace

void add_measured(const DualPipeRun& run, Report& report) {
  const DualPipeImages images = read_images(run);
  std::vector<Measured> all;
  for (const DualPipeNetwork& network : run.networks) all.push_back(measure(run, network, images));
  const std::string how = fmt::format(
      "Whole networks with batches of {}, measured here by one thread: a device is one core of this machine, and its "
      "link is as much slower than PCIe 3.0 x16 as it is slower than a Tesla P40 (by operations per second). Cuts "
      "are balanced by operations.",
      run.batch(kSmallBatch));
  for (const auto& figure : {fig4, fig7, fig10, fig11}) report.figures.push_back(figure(all, how));
  for (const Measured& m : all)
    for (const auto& [gpus, profile] : m.profiles)
      report.files.emplace_back(fmt::format("{}-{}-stages.json", m.title, gpus), to_json(profile));
  add_claims(all, report.claims);
}

}  // namespace tandem::apps
