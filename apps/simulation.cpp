#include "simulation.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/units.h>
#include <tandem/core/runtime/trial_run.h>
#include <tandem/engine.h>
#include <tandem/plan/layer_profile.h>
#include <tandem/plan/measured_layers.h>
#include <tandem/plan/measured_stages.h>

#include "lane_report.h"
#include "log.h"
#include "measured_feed.h"
#include "output_file.h"
#include "trace_file.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr std::int64_t kSimulatedBatches = 20;

// The Host of a Program with `replicas` of the run's ranks, for each its share of a batch.
TrainFeed feed_of(const TrainOptions& o, int replicas, const CifarData& data) {
  return measured_feed(data.trained(o.models), o.batch_size / o.ranks * replicas, o.microbatches, o.seed);
}

// What `tandem sim pipeline` reads. Times of another machine, from --profile, have no measured corun.
StageProfile stage_profile(const TrainOptions& o, const Strategy& s, const CoreShares& cores,
                           const Program& program, const Graph& forward, const CifarData& data) {
  StageProfile stages{.stages = stage_costs(program), .corun = program.corun_of(0)};
  if (!o.link.empty())
    stages.link = {.bytes_per_ms = s.link.bandwidth / kMsPerSecond,
                   .latency_ms = s.link.latency * kMsPerSecond};
  if (!o.profile.empty()) return stages;
  TrainFeed host = feed_of(o, 1, data);
  const StateDict state = initial_state(o, data.classes);
  stages.corun = measured_corun(forward, s, host, state, cores.rank);
  stages.uncut = UncutCost{.single_ms = measured_batch_ms(forward, s, host, state)};
  for (const StageCost& stage : stages.stages) stages.uncut->sync_bytes += stage.weight_bytes;
  return stages;
}

void say_what_is_assumed(const TrainOptions& o, int busy, int available) {
  if (o.link.empty() && o.ranks * o.devices > 1)
    log_warning("without --link, an all-reduce costs nothing, and a transfer costs a copy in memory");
  if (busy > available)
    log_warning(fmt::format("the prediction is for {} with a core each; this machine has {}",
                            counted(busy, "computing thread"), counted(available, "core")));
}

}  // namespace

double measured_copy_slowdown(const TrainOptions& o, const Program& program, const CifarData& data) {
  TrainFeed host = feed_of(o, program.replicas, data);
  return copy_slowdown(program, cpu_kernels(), host, initial_state(o, data.classes));
}

Profile measured_profile(const TrainOptions& o, const Strategy& strategy, const Graph& forward,
                         const Program& program, const CifarData& data) {
  Profile profile;
  const StateDict state = initial_state(o, data.classes);
  const auto measure = [&](const Program& p) {
    TrainFeed host = feed_of(o, p.replicas, data);
    profile.measure(p, cpu_kernels(), host, state);
  };
  if (strategy.stages > 1) {
    measure(layers_program(forward, strategy));
    Strategy best = strategy;
    best.cuts = measured_cuts(forward, strategy, profile);
    best.fusion_groups.clear();  // they may cross these cuts
    if (best.cuts != strategy.cuts) measure(build(forward, best));
  }
  measure(program);
  return profile;
}

void simulate(const TrainOptions& o, const Strategy& s, const CoreShares& cores, const Graph& forward,
              const CifarData& data, const std::optional<Profile>& known, RunDirectory& directory,
              const std::string& plan) {
  Program program = build(forward, s);
  const std::int64_t batches =
      o.steps > 0 ? o.steps : std::min(kSimulatedBatches, data.train->size() / o.batch_size);
  require_simulable("--steps", batches, program);
  if (!known) log_info("measures the kernels of the run, and of a pipeline those of its layers");
  const Profile profile = known ? *known : measured_profile(o, s, forward, program, data);
  program = with_costs(std::move(program), profile);
  const int busy = s.threads * cores.lanes;
  say_what_is_assumed(o, busy, cores.available);
  // Lanes of a stage with a core each do not disturb each other; with fewer cores they take turns.
  program.corun.assign(static_cast<std::size_t>(program.devices), busy <= cores.available ? 0.5 : 1.0);
  SimBackend sim(program);
  engine::run(sim, batches);
  std::string stages, layers;  // what their files hold
  if (directory.keeps() && o.parallel == "pipeline")
    stages = to_json(stage_profile(o, s, cores, program, forward, data));
  if (directory.keeps() && s.stages > 1 && !known)
    layers = layer_profile_json(measured_partition_problem(forward, s, profile).layers);
  directory.start(o);  // after all measurements: an interrupted one leaves the directory as it was
  directory.plan(plan);
  if (directory.keeps()) {
    write_json(directory.path("profile.json"), "profile", profile.to_json());
    write_json(directory.path("program.json"), "program", to_json(program));
    if (!stages.empty()) write_json(directory.path("stages.json"), "stages", stages);
    if (!layers.empty()) write_json(directory.path("layers.json"), "layers", layers);
  }
  write_trace(o.trace, sim.timeline(), o.trace_steps);
  Summary summary;
  summary.simulated = true;
  summary.step_ms = sim.now() / static_cast<double>(batches) * kMsPerSecond;
  summary.images_per_second = static_cast<double>(o.batch_size) / summary.step_ms * kMsPerSecond;
  summary.planned_peak_bytes = planned_peak(program);
  summary.live_peak_bytes = live_peak(program);
  directory.summary(summary);
  fmt::print("predicted: {:.2f} ms per step, {:.0f} images/s, planned peak {:.1f} MB per device\n",
             summary.step_ms, summary.images_per_second,
             static_cast<double>(summary.planned_peak_bytes) / kBytesPerMb);
  print_lanes(sim);
}

}  // namespace tandem::apps
