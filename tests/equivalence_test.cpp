// Rule 2: every pass on or off gives the same losses.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <tandem/core/error.h>
#include <tandem/core/sim_backend.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem {
namespace {

using testing::expect_same_state;
using testing::Job;
using testing::largest_difference;
using testing::Outcome;
using testing::small_residual_job;
using testing::train;

Strategy plain() {
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  return s;
}

TEST(Equivalence, PlainTrainingLearns) {
  Job job = small_residual_job();
  job.drains = {40};
  job.period = 1;  // so that the loss must fall
  const Outcome out = train(job, plain());
  ASSERT_EQ(40u, out.losses.size());
  EXPECT_LT(out.losses.back()[0], 0.5 * out.losses.front()[0]);
  EXPECT_EQ(out.planned_peak, out.executed_peak);
}

TEST(Equivalence, FlushSchedulesEqualAccumulationBitwise) {
  for (int models : {1, 3})
    for (int microbatches : {1, 2, 4}) {
      Job job = small_residual_job(models == 1 ? DType::f64 : DType::f32);
      if (models == 3) job.seeds = {3, 8, 5}, job.rates = {0.1, 0.05, 0.02};
      Strategy s = plain();
      s.microbatches = microbatches;
      const Outcome reference = train(job, s);
      for (ScheduleKind kind : {ScheduleKind::plain, ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
        for (int stages : {1, 2, 4}) {
          SCOPED_TRACE(::testing::Message()
                       << name_of(kind) << " stages " << stages << " microbatches " << microbatches);
          s.schedule = kind;
          s.stages = stages;
          const Outcome out = train(job, s);
          EXPECT_EQ(reference.losses, out.losses);
          expect_same_state(reference.state, out.state);
          EXPECT_EQ(out.planned_peak, out.executed_peak);
        }
    }
}

// A step keeps to its side of every barrier of its unit; the ranks' own clocks suffice to see it.
void expect_barriers_part_the_list(const Program& p, const Timeline& t, int barriers_per_unit) {
  std::int64_t met = 0;
  for (const Span& barrier : t.spans) {
    const Step& step = p.step(barrier.step);
    if (!step.barrier) continue;
    ++met;
    for (const Span& s : t.spans) {
      if (s.rank != barrier.rank || s.unit != barrier.unit || s.step == barrier.step) continue;
      if (s.step < barrier.step)
        EXPECT_LE(s.end, barrier.begin) << p.step(s.step).name << " in unit " << s.unit;
      else
        EXPECT_GE(s.begin, barrier.end) << p.step(s.step).name << " in unit " << s.unit;
    }
  }
  EXPECT_EQ(met, barriers_per_unit * 8 * p.devices * p.replicas);
}

TEST(Equivalence, LockstepChangesOnlyTheTime) {
  Job job = small_residual_job(DType::f64);
  job.drains = {8};
  for (ScheduleKind kind : {ScheduleKind::plain, ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                            ScheduleKind::pipedream, ScheduleKind::dualpipe})
    for (int stages : {1, 2, 4})
      for (int replicas : {1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << name_of(kind) << " stages " << stages << " replicas " << replicas);
        Strategy s = plain();
        s.schedule = kind;
        s.stages = stages;
        s.replicas = replicas;
        s.microbatches = 2;
        const Outcome free = train(job, s);
        s.lockstep = true;
        const Outcome lockstep = train(job, s);
        EXPECT_EQ(free.losses, lockstep.losses);
        expect_same_state(free.state, lockstep.state);
        EXPECT_EQ(lockstep.planned_peak, lockstep.executed_peak);
        expect_barriers_part_the_list(lockstep.program, lockstep.timeline,
                                      kind == ScheduleKind::pipedream ? 2 : 1);
      }
}

TEST(Equivalence, ReplicasEqualTheBigBatch) {
  const Job job = small_residual_job(DType::f64);
  const Outcome one = train(job, plain());
  for (int replicas : {2, 4})
    for (int stages : {1, 2})
      for (int microbatches : {1, 2})
        for (bool grouped : {false, true}) {
          SCOPED_TRACE(::testing::Message() << replicas << " replicas, " << stages << " stages, "
                                            << microbatches << " micro-batches, grouped " << grouped);
          Strategy s = plain();
          s.replicas = replicas;
          s.stages = stages;
          s.microbatches = microbatches;
          if (grouped) s.fusion_groups = {{"stem.weight", "stem.bias"}, {"head.weight", "head.bias"}};
          const Outcome out = train(job, s);
          EXPECT_LE(largest_difference(one, out), 1e-12);
          EXPECT_EQ(out.planned_peak, out.executed_peak);
        }
}

TEST(Equivalence, FusionGroupsChangeNoBit) {
  const Job job = small_residual_job();
  Strategy s = plain();
  s.replicas = 2;
  const Outcome separate = train(job, s);
  s.fusion_groups = {{"head.weight", "head.bias", "block3.second.weight"},
                     {"stem.weight", "block0.first.bias", "stem.bias"}};
  const Outcome fused = train(job, s);
  EXPECT_EQ(separate.losses, fused.losses);
  expect_same_state(separate.state, fused.state);
}

// y = gelu(x·a + x) and its like: chains, values read twice, a cast between, shapes that broadcast.
struct Chains : nn::Module {
  nn::Linear stem{*this, "stem", {12, 24}}, head{*this, "head", {24, 10}};
  Tensor forward(const Tensor& x) override {
    const Tensor h = stem(flatten(x));
    const Tensor a = tanh(scale(h, 0.5)), b = gelu(h * a + h), c = cast(cast(b - a, DType::bf16), h.dtype());
    return head(where(greater(c, scale(h, 0.1)), sigmoid(b) * c, exp(neg(abs(b)))) + mean(b, {0}));
  }
};

TEST(Equivalence, FusingPointwiseOpsChangesNoBit) {
  for (const bool chains : {false, true})
    for (const DType dtype : {DType::f32, DType::f64}) {
      Job job = small_residual_job(dtype);
      if (chains) job.model = [] { return std::make_unique<Chains>(); };
      Strategy s = plain();
      for (const int stages : {1, 2}) {
        s.stages = stages;
        s.cuts = stages == 1 ? std::vector<std::string>{} : std::vector<std::string>{"head"};
        s.schedule = stages == 1 ? ScheduleKind::plain : ScheduleKind::dualpipe;
        s.fuse_pointwise = false;
        const Outcome apart = train(job, s);
        const Program long_one = build(trace_job(job, job.batch_size), s);
        s.fuse_pointwise = true;
        const Outcome fused = train(job, s);
        const Program short_one = build(trace_job(job, job.batch_size), s);
        EXPECT_EQ(apart.losses, fused.losses);
        expect_same_state(apart.state, fused.state);
        EXPECT_LT(short_one.steps.size(), long_one.steps.size());
        EXPECT_LE(planned_peak(short_one), planned_peak(long_one) * 102 / 100)
            << "small tensors may live longer";
      }
    }
}

Job convolutional_job() {
  Job job = small_residual_job();
  job.sample = {8, 8, 3};
  job.model = [] {
    return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {4, 8, 8}});
  };
  return job;
}

// Products in bf16, weights in f32: near to training in f32, and the same whatever the schedule.
TEST(Equivalence, MixedPrecisionIsNearToF32AndTheSameUnderEverySchedule) {
  for (const bool images : {false, true}) {
    Job job = images ? convolutional_job() : small_residual_job();
    const Outcome f32 = train(job, plain());
    Strategy s = plain();
    s.amp = DType::bf16;
    const Outcome one = train(job, s);
    const Program p = build(trace_job(job, job.batch_size), s);
    std::map<std::string, int> products;
    for (const Step& step : p.steps)
      if (step.op->precision() == Precision::low) ++products[std::string(name_of(step.outputs[0].dtype))];
    EXPECT_EQ(products.size(), 1u);
    EXPECT_GT(products["bf16"], 0);
    for (const StateBlock& state : p.states) EXPECT_EQ(state.type.dtype, DType::f32) << state.path;
    ASSERT_EQ(one.losses.size(), f32.losses.size());
    for (std::size_t b = 0; b < one.losses.size(); ++b) {
      EXPECT_NE(one.losses[b], f32.losses[b]) << "bf16 rounds";
      EXPECT_NEAR(one.losses[b][0], f32.losses[b][0], 0.02 * f32.losses[b][0]) << "batch " << b;
    }
    if (images) continue;  // batch norm sees micro-batches
    s.recompute = {"block2"};
    s.fuse_pointwise = false;
    const Outcome recomputed = train(job, s);
    EXPECT_EQ(one.losses, recomputed.losses);
    expect_same_state(one.state, recomputed.state);
    s = plain();
    s.amp = DType::bf16;
    s.microbatches = 2;
    const Outcome accumulated = train(job, s);
    s.stages = 2;
    s.cuts = {"block2"};
    s.schedule = ScheduleKind::one_f_one_b;
    const Outcome pipelined = train(job, s);
    EXPECT_EQ(accumulated.losses, pipelined.losses);
    expect_same_state(accumulated.state, pipelined.state);
  }
}

TEST(Equivalence, MixedPrecisionRefusesWhatItDoesNotKnow) {
  Strategy s = plain();
  s.amp = DType::f16;
  EXPECT_THROW(build(trace_job(small_residual_job(), 8), s), Error);
  s.amp = DType::bf16;
  EXPECT_THROW(build(trace_job(small_residual_job(DType::f64), 8), s), Error);
}

// The gradients of a group are made where they are reduced, side by side.
TEST(Equivalence, FusingCopiesNothing) {
  const Job job = small_residual_job();
  Strategy s = plain();
  s.replicas = 2;
  s.fusion_groups = {{"head.weight", "head.bias", "block3.second.weight"}, {"stem.weight", "stem.bias"}};
  for (int microbatches : {1, 2}) {
    s.microbatches = microbatches;
    const Program p = build(trace_job(job, job.batch_size / 2 / microbatches), s);
    std::size_t groups = 0;
    for (const Step& step : p.steps) {
      EXPECT_NE(step.op->name(), "copy") << step.name;
      if (step.op->lane() != LaneKind::collective) continue;
      ++groups;
      std::int64_t end = 0;
      for (MemberId m : step.reads) {
        EXPECT_EQ(p.member(m).block, p.member(step.reads[0]).block) << step.name;
        EXPECT_EQ(p.member(m).offset, end) << step.name;
        end = p.member(m).offset + align_up(p.member(m).bytes);
      }
    }
    EXPECT_GT(groups, 2u);
  }
}

TEST(Equivalence, ModelsSideBySideEqualModelsAloneBitwise) {
  Job job = small_residual_job();
  job.seeds = {3, 8, 5};
  job.rates = {0.1, 0.05, 0.02};
  const Outcome together = train(job, plain());
  for (std::size_t m = 0; m < job.seeds.size(); ++m) {
    Job alone = job;
    alone.seeds = {job.seeds[m]};
    alone.rates = {job.rates[m]};
    const Outcome out = train(alone, plain());
    for (std::size_t b = 0; b < out.losses.size(); ++b)
      EXPECT_EQ(out.losses[b][0], together.losses[b][m]) << "model " << m << " batch " << b;
  }
}

TEST(Equivalence, SwapAndRecomputeChangeNoBit) {
  const Job job = small_residual_job();
  const Outcome kept = train(job, plain());
  for (const auto& [swap, recompute] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
           {{"*"}, {}}, {{}, {"block1", "block2"}}, {{"block0", "block3"}, {"block2"}}}) {
    SCOPED_TRACE(::testing::Message() << swap.size() << " swaps, " << recompute.size() << " recomputes");
    Strategy s = plain();
    s.swap = swap;
    s.recompute = recompute;
    const Outcome out = train(job, s);
    EXPECT_EQ(kept.losses, out.losses);
    expect_same_state(kept.state, out.state);
    EXPECT_EQ(out.planned_peak, out.executed_peak);
  }
}

TEST(Equivalence, AllAtOnceTrainsAndEqualsItsParts) {
  Job job = small_residual_job(DType::f64);
  job.seeds = {3, 8};
  job.rates = {0.1, 0.05};
  const Outcome one = train(job, plain());
  for (ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b}) {
    Strategy s = plain();
    s.replicas = 2;
    s.stages = 2;
    s.microbatches = 2;
    s.schedule = kind;
    s.swap = {"block0"};
    s.recompute = {"block3"};
    const Outcome out = train(job, s);
    EXPECT_LE(largest_difference(one, out), 1e-12);
    EXPECT_EQ(out.planned_peak, out.executed_peak);
  }
}

// Two data × two stages × two models, activations off the device, under the budget that the plan needs.
TEST(Equivalence, AllAtOnceUnderLaggedSchedulesEqualsOneReplica) {
  Job job = small_residual_job(DType::f64);
  job.drains = {6, 3};
  job.seeds = {3, 8};
  job.rates = {0.1, 0.05};
  for (ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::dualpipe}) {
    SCOPED_TRACE(name_of(kind));
    Strategy s = plain();
    s.stages = 2;
    s.schedule = kind;
    const Outcome one = train(job, s);
    s.replicas = 2;
    s.swap = {"block0"};
    s.recompute = {"block3"};
    const Outcome probe = train(job, s);
    EXPECT_LE(largest_difference(one, probe), 1e-12);
    s.memory_budget = std::max(planned_peak(probe.program, 0), planned_peak(probe.program, 1));
    const Outcome out = train(job, s);
    EXPECT_EQ(probe.losses, out.losses);
    EXPECT_EQ(out.planned_peak, out.executed_peak);
    --s.memory_budget;
    EXPECT_THROW(train(job, s), Error);
  }
}

TEST(Equivalence, BatchNormAndConvolutionThroughStagesSwapsAndRecomputesBitwise) {
  const Job job = convolutional_job();
  for (int microbatches : {1, 2}) {
    Strategy s = plain();
    s.microbatches = microbatches;
    const Outcome reference = train(job, s);
    for (int stages : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << stages << " stages, " << microbatches << " micro-batches");
      s.stages = stages;
      s.schedule = ScheduleKind::one_f_one_b;
      s.swap = {"block0"};
      s.recompute = {"block1"};
      const Outcome out = train(job, s);
      EXPECT_EQ(reference.losses, out.losses);
      expect_same_state(reference.state, out.state);
      EXPECT_EQ(out.planned_peak, out.executed_peak);
    }
  }
}

struct WithDropout final : nn::Module {
  nn::Linear first{*this, "first", {.in = 12, .out = 16}};
  nn::Dropout drop{*this, "drop", 0.4};
  nn::Linear second{*this, "second", {.in = 16, .out = 5}};
  Tensor forward(const Tensor& x) override { return second(drop(relu(first(flatten(x))))); }
};

TEST(Equivalence, DropoutDrawsTheSameWhateverTheRanksMicroBatchesModelsAndRecomputes) {
  Job job = small_residual_job(DType::f64);
  job.model = [] { return std::make_unique<WithDropout>(); };
  const Outcome one = train(job, plain());
  for (int replicas : {1, 2})
    for (int microbatches : {1, 2})
      for (int stages : {1, 2}) {
        Strategy s = plain();
        s.replicas = replicas;
        s.microbatches = microbatches;
        s.stages = stages;
        s.schedule = ScheduleKind::gpipe;
        if (stages == 2) s.cuts = {"drop"};  // so that its output is used where it is made
        s.recompute = {"drop"};
        EXPECT_LE(largest_difference(one, train(job, s)), 1e-12)
            << replicas << " " << microbatches << " " << stages;
      }
  Job three = job;
  three.seeds = {9, 1, 4};
  three.rates = {0.05, 0.05, 0.05};
  const Outcome together = train(three, plain());
  for (std::size_t b = 0; b < one.losses.size(); ++b) EXPECT_EQ(one.losses[b][0], together.losses[b][1]);
}

// What each schedule must hold, from the table in docs/design.md written out by hand: rows are stages,
// entries {age of F's read, age of B's read, weight versions held}.
TEST(Equivalence, BuiltProgramsReadTheWeightsOfTheTable) {
  using Row = std::array<int, 3>;
  const std::map<std::pair<ScheduleKind, int>, std::vector<Row>> table = {
      {{ScheduleKind::gpipe, 2}, {{1, 1, 1}, {1, 1, 1}}},
      {{ScheduleKind::one_f_one_b, 3}, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {{ScheduleKind::dualpipe, 1}, {{1, 1, 1}}},
      {{ScheduleKind::dualpipe, 2}, {{3, 1, 1}, {1, 1, 1}}},
      {{ScheduleKind::dualpipe, 3}, {{5, 1, 1}, {3, 1, 1}, {1, 1, 1}}},
      {{ScheduleKind::dualpipe, 4}, {{7, 1, 1}, {5, 1, 1}, {3, 1, 1}, {1, 1, 1}}},
      {{ScheduleKind::pipedream, 2}, {{2, 2, 2}, {1, 1, 1}}},
      {{ScheduleKind::pipedream, 3}, {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}}},
      {{ScheduleKind::pipedream, 4}, {{4, 4, 4}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}}}};
  for (const auto& [key, rows] : table) {
    Strategy s = plain();
    s.schedule = key.first;
    s.stages = key.second;
    const Program p = build(testing::trace_job(small_residual_job(), 8), s);
    int weights = 0;
    for (const Step& step : p.steps)
      for (MemberId m : step.reads) {
        const Member& member = p.member(m);
        const Block& block = p.block(member.block);
        if (block.arena != Arena::state || !block.name.ends_with(".weight") ||
            step.tag.phase == Phase::update)
          continue;
        const Row& row = rows[static_cast<std::size_t>(step.tag.stage)];
        SCOPED_TRACE(::testing::Message() << name_of(key.first) << " N=" << key.second << " stage "
                                          << step.tag.stage << " " << step.name);
        EXPECT_EQ(row[step.tag.phase == Phase::forward ? 0 : 1], 1 - member.shift);
        // The first layer's weight is not read by backward, which wants no gradient of the data.
        if (step.tag.phase == Phase::backward) {
          EXPECT_EQ(row[2], block.slots);
        }
        ++weights;
      }
    EXPECT_GT(weights, 10);
  }
}

// A product that DualPipe computes again needs the weights that F used, which are 2N − 1 − 2k updates old.
TEST(Equivalence, RecomputingAProductUnderDualPipeHoldsItsWeightsVersions) {
  Strategy s = plain();
  s.schedule = ScheduleKind::dualpipe;
  s.stages = 3;
  s.cuts = {"block1", "block2"};
  s.recompute = {"block0.conv conv2d", "block1.conv conv2d"};
  const Program p = build(testing::trace_job(convolutional_job(), 8), s);
  std::map<std::string, int> versions;
  for (const StateBlock& state : p.states) versions[state.path] = p.block(state.block).slots;
  EXPECT_EQ(5, versions["block0.conv.weight"]);
  EXPECT_EQ(3, versions["block1.conv.weight"]);
  EXPECT_EQ(1, versions["block2.conv.weight"]);
}

TEST(Equivalence, RecomputingEverythingWorksUnderEverySchedule) {
  const Job job = convolutional_job();
  for (ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::pipedream, ScheduleKind::dualpipe})
    for (int stages : {2, 3})
      for (bool swap : {false, true}) {
        SCOPED_TRACE(::testing::Message() << name_of(kind) << " " << stages << " stages, swap " << swap);
        Strategy s = plain();
        s.schedule = kind;
        s.stages = stages;
        const Outcome kept = train(job, s);
        (swap ? s.swap : s.recompute) = {"*"};
        const Outcome out = train(job, s);
        EXPECT_EQ(kept.losses, out.losses);
        expect_same_state(kept.state, out.state);
        const auto sends = [](const Program& p) {
          return std::count_if(p.steps.begin(), p.steps.end(),
                               [&](const Step& x) { return p.lane(x.lane).kind == LaneKind::send; });
        };
        EXPECT_EQ(sends(kept.program), sends(out.program)) << "activations travel once";
      }
}

// Layers whose activations dominate: taking them off the device must pay.
TEST(Equivalence, SwapAndRecomputeLowerThePeak) {
  Job job = convolutional_job();
  job.batch_size = 64;
  job.drains = {2};
  const Outcome kept = train(job, plain());
  Strategy s = plain();
  s.swap = {"*"};
  const Outcome swapped = train(job, s);
  EXPECT_LT(swapped.planned_peak, kept.planned_peak);
  EXPECT_EQ(kept.losses, swapped.losses);
  s.swap = {};
  s.recompute = {"block0"};
  const Outcome recomputed = train(job, s);
  EXPECT_LT(recomputed.planned_peak, kept.planned_peak);
  EXPECT_EQ(kept.losses, recomputed.losses);
}

struct SharedGradient final : nn::Module {
  nn::Linear a{*this, "a", {.in = 12, .out = 5, .bias = false}},
      b{*this, "b", {.in = 12, .out = 5, .bias = false}};
  Tensor forward(const Tensor& x) override {
    const auto weights = named_parameters();
    return linear(flatten(x), add(weights[0].second->tensor, weights[1].second->tensor));
  }
};

TEST(Equivalence, ParametersThatShareAGradientTrainOnReplicas) {
  Job job = small_residual_job(DType::f64);
  job.model = [] { return std::make_unique<SharedGradient>(); };
  Strategy s = plain();
  const Outcome one = train(job, s);
  s.replicas = 2;
  EXPECT_LE(largest_difference(one, train(job, s)), 1e-12);
}

std::map<LaneId, std::vector<std::pair<StepId, std::int64_t>>> lane_orders(const Timeline& t, int rank,
                                                                           const Program& p) {
  std::map<LaneId, std::vector<std::pair<StepId, std::int64_t>>> orders;
  for (const Span& s : t.spans)
    if (s.rank == rank && p.lane(s.lane).device == rank) orders[s.lane].emplace_back(s.step, s.batch);
  return orders;
}

TEST(Equivalence, SimulatedLaneOrderIsTheExecutedOne) {
  Job job = small_residual_job();
  job.drains = {7};
  for (ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::pipedream, ScheduleKind::dualpipe}) {
    Strategy s = plain();
    s.stages = 2;
    s.microbatches = 2;
    s.schedule = kind;
    s.swap = {"block0"};
    const Outcome out = train(job, s);
    Program program = out.program;
    for (std::size_t i = 0; i < program.steps.size(); ++i)
      program.steps[i].cost.seconds = 1e-3 * static_cast<double>(1 + i % 7);
    SimBackend sim(program);
    run(sim, 7);
    for (int stage : {0, 1}) {
      const auto executed = lane_orders(out.timeline, stage, program);
      EXPECT_FALSE(executed.empty());
      EXPECT_EQ(lane_orders(sim.timeline(), stage, program), executed) << name_of(kind) << " stage " << stage;
    }
  }
}

TEST(Equivalence, WhatIsNotFiniteIsNoMatch) {
  Outcome a, b;
  a.losses = {{1.0}};
  b.losses = {{std::nan("")}};
  EXPECT_EQ(largest_difference(a, a), 0);
  EXPECT_GT(largest_difference(a, b), 1);
  EXPECT_GT(largest_difference(b, b), 1);
  b.losses = {{1.0}, {2.0}};
  EXPECT_GT(largest_difference(a, b), 1);
}

}  // namespace
}  // namespace tandem
