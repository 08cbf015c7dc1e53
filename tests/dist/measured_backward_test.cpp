// The times of a backward pass from a timeline.
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/measured_backward.h>
#include <tandem/ops/collective.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
namespace {

constexpr int kBatches = 3;

struct Planned {
  Program program;
  std::vector<GradientLayer> layers;
};

// A step that reduces all gradients after backward, whose computations take 1, 2, 3, 1, 2, 3 … ms.
Planned planned_se(int stages = 1, int stage = 0) {
  const Job job = small_residual_job();
  Strategy s;
  s.replicas = 2;
  s.stages = stages;
  const Graph forward = trace_job(job, job.batch_size / s.replicas);
  const auto layers = gradient_layers(forward, s);
  s.fusion_groups = fusion_groups(layers, "se");
  Planned p{build(forward, s), layers[static_cast<std::size_t>(stage)]};
  int n = 0;
  for (Instruction& i : p.program.instructions)
    if (p.program.lane(i.lane).kind == LaneKind::compute) i.cost.seconds = 1e-3 * (++n % 3 + 1);
  return p;
}

// Two replicas that do the same; the simulator runs one.
Timeline simulated(const Program& program) {
  SimBackend sim(program);
  run(sim, kBatches);
  Timeline both = sim.timeline();
  for (Span span : sim.timeline().spans) {
    span.rank += program.devices;
    both.spans.push_back(span);
  }
  return both;
}

double sum(const MeasuredBackward& m) {
  return std::accumulate(m.layers.begin(), m.layers.end(), 0.0,
                         [](double s, const GradientLayer& l) { return s + l.compute_ms; });
}

// What takes 10 ms longer is found in one layer, unless it is no part of backward, or comes after all
// gradients.
TEST(MeasuredBackward, FindsEveryComputationInOneLayer) {
  const Planned p = planned_se();
  const MeasuredBackward before = measured_backward(p.program, simulated(p.program), p.layers);
  ASSERT_EQ(p.layers.size(), before.layers.size());
  int found = 0;
  for (const InstructionId slow : p.program.instructions.ids()) {
    if (p.program.lane_of(slow).kind != LaneKind::compute) continue;
    Program slower = p.program;
    slower.instruction(slow).cost.seconds += 10e-3;
    const MeasuredBackward after = measured_backward(slower, simulated(slower), p.layers);
    int longer = 0;
    for (std::size_t i = 0; i < p.layers.size(); ++i) {
      EXPECT_EQ(p.layers[i].name, after.layers[i].name);
      const double more = after.layers[i].compute_ms - before.layers[i].compute_ms;
      EXPECT_TRUE(std::abs(more) < 1e-6 || std::abs(more - 10) < 1e-6) << more;
      longer += more > 1;
    }
    const Phase phase = slower.instruction(slow).tag.phase;
    EXPECT_LE(longer, phase == Phase::backward ? 1 : 0) << slower.instruction(slow).name;
    EXPECT_NEAR(phase == Phase::forward ? 10 : 0, after.forward_ms - before.forward_ms, 1e-6);
    found += longer;
  }
  EXPECT_GE(found, static_cast<int>(p.layers.size()));
}

// Rank 1 takes twice the time. Its clock shows another time, as that of a machine that has run for longer or
// shorter.
TEST(MeasuredBackward, CountsTheLatestRankByItsOwnClock) {
  const Planned p = planned_se();
  const double one = sum(measured_backward(p.program, simulated(p.program), p.layers));
  const double backward = measured_backward_ms(p.program, simulated(p.program));
  for (const double clock : {1000.0, -1000.0}) {
    Timeline both = simulated(p.program);
    for (Span& span : both.spans) {
      if (span.rank == 0) continue;
      span.begin = clock + 2 * span.begin;
      span.end = clock + 2 * span.end;
    }
    EXPECT_NEAR(2 * one, sum(measured_backward(p.program, both, p.layers)), 1e-6);
    EXPECT_NEAR(2 * backward, measured_backward_ms(p.program, both), 1e-6);
    for (const BackwardSample& sample : measured_all_reduces(p.program, both)) {
      EXPECT_NEAR(2 * one, sample.compute_ms, 1e-6);
      for (const AllReduceSample& r : sample.all_reduces) EXPECT_NEAR(0, r.beside_backward_ms, 1e-6);
    }
  }
}

TEST(MeasuredBackward, MeasuresEachStage) {
  for (const int stage : {0, 1}) {
    const Planned p = planned_se(2, stage);
    EXPECT_GT(sum(measured_backward(p.program, simulated(p.program), p.layers, stage)), 0);
  }
}

TEST(MeasuredBackward, RefusesOtherProgramsAndEmptyTimelines) {
  const Planned p = planned_se();
  const Job job = small_residual_job();
  Strategy apart;
  apart.replicas = 2;
  const Program other = program_of(job, apart);
  expect_error([&] { measured_backward(other, simulated(other), p.layers); }, {"no all-reduce of all"});
  expect_error([&] { measured_backward(p.program, {}, p.layers); }, {"no whole batch"});
}

// Each layer is held up in another batch: so the medians of the layers do not show it, but that of all does.
TEST(MeasuredBackward, LayersTakeTheMedianOfTheWholePass) {
  const Planned p = planned_se();
  const double alone = sum(measured_backward(p.program, simulated(p.program), p.layers));
  const auto held_up = [&](double ms) {  // in each of the batches, all after another instruction of backward
    Timeline timeline = simulated(p.program);
    std::vector<InstructionId> backward;
    for (const InstructionId id : p.program.instructions.ids())
      if (p.program.lane_of(id).kind == LaneKind::compute &&
          p.program.instruction(id).tag.phase == Phase::backward)
        backward.push_back(id);
    for (Span& span : timeline.spans) {
      const auto late = static_cast<std::size_t>(span.batch + 1) * backward.size() / (kBatches + 1);
      const bool begins_later = span.instruction > backward[late];
      if (span.instruction >= backward[late]) span.end += 1e-3 * ms;
      if (begins_later) span.begin += 1e-3 * ms;
    }
    return measured_backward(p.program, timeline, p.layers);
  };
  EXPECT_NEAR(alone + 10, sum(held_up(10)), 1e-6);
}

// Training Programs with random groups and threads, whose computations take times by their names.
TEST(MeasuredBackward, OfAPlannedProgramIsTheTimeOfTheEquations) {
  const Job job = small_residual_job();
  Strategy s;
  s.replicas = 2;
  s.link = {20e-6, 1e9};
  s.contention = std::vector<ThreadRates>{{1, 0.8, 1e6, 1.3e6}, {2, 0.6, 1.2e6, 2e6}};
  const Graph forward = trace_job(job, job.batch_size / s.replicas);
  const auto layers = gradient_layers(forward, s)[0];
  const auto costed = [&](const std::vector<FusionGroup>& groups) {
    s.fusion_groups = groups;
    Program p = build(forward, s);
    for (Instruction& i : p.instructions)
      if (p.lane(i.lane).kind == LaneKind::compute)
        i.cost.seconds = i.tag.phase == Phase::backward && i.op->name() != "copy"
                             ? 1e-5 * static_cast<double>(fnv1a(i.name) % 3 + 1)
                             : 0;
    return p;
  };
  const auto of_both = [](const Program& p) {
    Timeline both = simulated(p);
    std::vector<Span> others = both.spans;
    for (Span& span : others) span.rank = 1;
    both.spans.insert(both.spans.end(), others.begin(), others.end());
    return both;
  };
  const Program together = costed(fusion_groups({layers}, "se"));
  const auto measured = measured_backward(together, of_both(together), layers).layers;
  const AllReduceCosts costs = ring_costs(s.replicas, 1e3 * s.link.latency, {});
  std::mt19937_64 rng = generator("planned programs");
  for (int n = 0; n < 30; ++n) {
    std::vector<AllReduceGroup> groups;
    for (int l = 0; l < std::ssize(layers); ++l) {
      if (groups.empty() || draw_bool(rng, 0.4))
        groups.push_back({l, l, s.contention->at(draw_int(rng, 1, 2))});
      groups.back().last_layer = l;
    }
    const Program p = costed(fusion_groups(layers, groups));
    const double ms = backward_times(measured, groups, costs).backward_ms;
    EXPECT_NEAR(ms, measured_backward_ms(p, of_both(p)), 1e-9 * ms) << n;
  }
}

// When the all-reduces of gradients begin after the first computation of backward, in ms; by batch, in order.
std::vector<std::vector<double>> begins_of_all_reduces(const Program& program, const Timeline& timeline) {
  std::vector<std::vector<double>> begins(kBatches);
  std::vector<double> backward(kBatches, std::numeric_limits<double>::infinity());
  for (const Span& s : timeline.spans)
    if (program.instruction(s.instruction).tag.phase == Phase::backward &&
        program.lane_of(s.instruction).kind == LaneKind::compute) {
      double& first = backward[static_cast<std::size_t>(s.batch)];
      first = std::min(first, s.begin);
    }
  for (const Span& s : timeline.spans)
    if (as<AllReduceOp>(program.instruction(s.instruction)) && s.rank == 0)
      begins[static_cast<std::size_t>(s.batch)].push_back(
          1e3 * (s.begin - backward[static_cast<std::size_t>(s.batch)]));
  return begins;
}

// Two groups that may not begin before 30 ms and 50 ms, as under Horovod's policy.
TEST(Timers, HoldBackAllReduces) {
  Job job = small_residual_job();
  job.drains = {kBatches};
  Strategy s;
  s.replicas = 2;
  const Graph forward = trace_job(job, job.batch_size / s.replicas);
  const auto layers = gradient_layers(forward, s)[0];
  s.fusion_groups.resize(2);
  for (std::size_t l = 0; l < layers.size(); ++l)
    s.fusion_groups[l < 2 ? 0 : 1].parameters.push_back(layers[l].parameters[0]);
  s.fusion_groups[0].earliest_ms = 30;
  s.fusion_groups[1].earliest_ms = 50;
  const Program program = build(forward, s);
  for (const auto& begins : begins_of_all_reduces(program, simulated(program))) {
    ASSERT_GE(begins.size(), 2u);
    EXPECT_NEAR(begins[0], 30, 1e-6);
    EXPECT_NEAR(begins[1], 50, 1e-6);
  }
  EXPECT_NEAR(measured_backward_ms(program, simulated(program)), 50, 1e-6);
  const Outcome held = train(job, s);
  for (const auto& begins : begins_of_all_reduces(program, held.timeline)) {
    ASSERT_GE(begins.size(), 2u);
    EXPECT_GE(begins[0], 30);
    EXPECT_GE(begins[1], begins[0] + 15);
  }
  s.fusion_groups[0].earliest_ms = s.fusion_groups[1].earliest_ms = 0;
  EXPECT_EQ(held.losses, train(job, s).losses);
}

}  // namespace
}  // namespace tandem::testing
