#include "dualpipe_profiles.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/runtime/profile.h>
#include <tandem/plan/build.h>
#include <tandem/plan/measured_layers.h>
#include <tandem/plan/measured_stages.h>
#include <tandem/train/objective.h>

#include "dualpipe_training.h"
#include "log.h"
#include "measured_feed.h"
#include "program_flops.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr std::int64_t kRealIterations = 16;
// PCIe 3.0 x16 and the Tesla P40 of the paper: bytes and multiplications and additions per second.
constexpr double kLinkBytes = 15.75e9, kGpuFlops = 11.76e12;

const SgdOptions kSgd{.momentum = 0.9};

// Measures one network.
class Measurement {
 public:
  Measurement(const DualPipeNetwork& network, const DualPipeSamples& samples, std::int64_t batch)
      : samples_(samples), batch_(batch), network_(network), net_(traced(network, samples)) {}

  // What all schemes and numbers of stages have in common.
  StageProfile common() const {
    const double single_ms = batch_ms(batch_);
    TrainFeed host = feed(batch_);
    const Graph forward = net_.forward(batch_);
    return {.link = {.bytes_per_ms = flops_of(build(forward, one_)) / single_ms * kLinkBytes / kGpuFlops},
            .corun = measured_corun(forward, one_, host, net_.module->state(), 1),
            .uncut = UncutCost{.single_ms = single_ms}};
  }

  // The time that N devices compute for a batch of which each has a part, over an Nth of one device's.
  double data_compute_factor(int gpus, double single_ms) const {
    return gpus * batch_ms(std::max<std::int64_t>(1, batch_ / gpus)) / single_ms;
  }

  std::vector<StageCost> stages(const Strategy& strategy) const {
    const Program program = build(net_.forward(batch_), strategy);
    TrainFeed host = feed(batch_);
    Profile profile;
    profile.measure(program, cpu_kernels(), host, net_.module->state());
    return stage_costs(with_costs(program, profile));
  }

  // The kernels of the layers that can be cut into so many stages.
  Profile layers(int stages) const {
    TrainFeed host = feed(batch_);
    Profile profile;
    profile.measure(
        layers_program(net_.forward(batch_), lockstep_strategy(kDualPipeSchemes[kPipeDream], stages)),
        cpu_kernels(), host, net_.module->state());
    return profile;
  }

  Strategy strategy(const DualPipeScheme& scheme, int stages, const Profile& layers) const {
    Strategy strategy = lockstep_strategy(scheme, stages);
    strategy.cuts = measured_cuts(net_.forward(batch_), strategy, layers);
    return strategy;
  }

  RealRun run(const Strategy& strategy) const {
    const LearningCurve curve = train({.network = network_.whole(),
                                       .schedule = strategy.schedule,
                                       .stages = strategy.stages,
                                       .batch_size = batch_,
                                       .iterations = kRealIterations,
                                       .lockstep = true,
                                       .cuts = strategy.cuts,
                                       .measure_busy = true},
                                      {samples_.train, {}});
    return {curve.step_ms, curve.busy};
  }

 private:
  TrainFeed feed(std::int64_t samples) const { return measured_feed({samples_.train}, samples); }
  double batch_ms(std::int64_t samples) const {
    TrainFeed host = feed(samples);
    return measured_batch_ms(net_.forward(samples), one_, host, net_.module->state());
  }

  const DualPipeSamples& samples_;
  const std::int64_t batch_;
  const DualPipeNetwork& network_;
  const TracedNetwork net_;
  const Strategy one_{.optimizer = kSgd};  // one device
};

}  // namespace

Graph TracedNetwork::forward(std::int64_t samples) const {
  return trace_forward(*module, data, classification(), samples, true);
}

TracedNetwork traced(const DualPipeNetwork& network, const DualPipeSamples& samples) {
  TracedNetwork result{network.whole(), *samples.train};
  result.module->initialize(1);
  return result;
}

Strategy lockstep_strategy(const DualPipeScheme& scheme, int stages) {
  return {.stages = stages, .schedule = scheme.schedule, .lockstep = true, .optimizer = kSgd};
}

namespace {

// The sum over the stages of the profile without predictions.
double sum(const MeasuredNetwork& m, double StageCost::*ms) {
  double all = 0;
  for (const StageCost& s : m.profiles.begin()->second.at(kDualPipeSchemes[kPipeDream].timed_as).stages)
    all += s.*ms;
  return all;
}

}  // namespace

double MeasuredNetwork::backward_ratio() const {
  return sum(*this, &StageCost::backward_ms) / sum(*this, &StageCost::forward_ms) + update_ratio();
}

double MeasuredNetwork::update_ratio() const {
  return sum(*this, &StageCost::update_ms) / sum(*this, &StageCost::forward_ms);
}

double MeasuredNetwork::corun() const { return profiles.begin()->second.begin()->second.corun; }

double MeasuredNetwork::single_ms() const {
  return profiles.begin()->second.begin()->second.uncut->single_ms;
}

MeasuredNetwork measure(const DualPipeNetwork& network, const DualPipeSamples& samples, std::int64_t batch,
                        const std::vector<int>& gpus) {
  const Measurement measurement(network, samples, batch);
  MeasuredNetwork result{network.title, {}, {}, {}};
  StageProfile profile = measurement.common();
  for (const int n : gpus) {
    profile.uncut->data_compute_factor = measurement.data_compute_factor(n, profile.uncut->single_ms);
    const Profile layers = measurement.layers(n);
    for (const std::size_t s : kTimedPipelines) {
      const DualPipeScheme& scheme = kDualPipeSchemes[s];
      const Strategy strategy = measurement.strategy(scheme, n, layers);
      profile.stages = measurement.stages(strategy);
      profile.uncut->sync_bytes = 0;
      for (const StageCost& stage : profile.stages) profile.uncut->sync_bytes += stage.weight_bytes;
      result.profiles[n][scheme.timed_as] = profile;
      result.cuts[n][scheme.timed_as] = strategy.cuts;
      if (n == gpus.front()) result.runs[scheme.timed_as] = measurement.run(strategy);
    }
  }
  log_info(fmt::format("{}: {:.0f} ms on one device, B/F {:.2f}, corun {:.2f}", network.title,
                       result.single_ms(), result.backward_ratio(), result.corun()));
  return result;
}

}  // namespace tandem::apps
