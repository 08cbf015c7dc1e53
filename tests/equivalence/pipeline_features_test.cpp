// Every schedule works with every other feature, and no feature that keeps bits changes one.
#include <cctype>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "lagged_loop.h"
#include "seed.h"
#include "test_name.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Longer than the deepest pipeline here, shorter than it, and one batch alone.
Job job_of(DType dtype) {
  Job job = small_residual_job(dtype);
  job.drains = {9, 3, 1};
  return job;
}

struct Way {
  std::string text;
  Strategy strategy;
};

// All schedules on four stages: free and in lockstep, and all targets of predictions.
std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const std::string& name : schedule_names())
    for (const bool lockstep : {false, true})
      for (const auto& [text, target] :
           {std::pair("", SpecTrainTarget::paper), std::pair(" effective", SpecTrainTarget::effective),
            std::pair(" serial", SpecTrainTarget::serial)}) {
        if (target != SpecTrainTarget::paper && name != "spectrain") continue;
        Strategy s = plain();
        s.schedule = name;
        s.spectrain_target = target;
        s.lockstep = lockstep;
        s.stages = 4;
        s.cuts = {"block0.second", "block2", "block3"};  // one is beside a skip
        s.microbatches = name == "interleaved" || name == "pipedream-2bw" ? 4 : 2;
        if (name == "interleaved") s.chunks = 2;
        ways.push_back({name + text + (lockstep ? " in lockstep" : ""), s});
      }
  return ways;
}

bool flushes(const Strategy& s) { return !schedule_of(s).overlaps_batches(); }

// The same micro-batches on one device, or on one per replica.
Strategy on_one_device(Strategy s) {
  s.stages = s.chunks = 1;
  s.cuts.clear();
  s.schedule = "plain";
  s.lockstep = false;
  return s;
}

class PipelineFeatures : public ::testing::TestWithParam<Way> {
 protected:
  // Runs with the change, which must leave the bits of `base`, and use the memory that was planned.
  template <class Change>
  void expect_unchanged(const std::string& what, const Outcome& base, Change change) const {
    SCOPED_TRACE(what);
    Strategy s = GetParam().strategy;
    change(s);
    expect_same_training(base, train(job_, s));
  }

  Job job_ = job_of(DType::f32);
};

TEST_P(PipelineFeatures, EachOptimizerEqualsTheLoop) {
  for (const Optimizer& optimizer : std::vector<Optimizer>{
           SgdOptions{.momentum = 0.9, .weight_decay = 1e-3}, SgdOptions{.momentum = 0.8, .nesterov = true},
           SgdOptions{.momentum = 0.9, .weight_decay = 1e-3, .rule = SgdRule::ema},
           SgdOptions{.momentum = 0.9, .weight_decay = 1e-3, .rule = SgdRule::raw_ema},
           AdamOptions{.weight_decay = 1e-2, .decoupled = true}}) {
    Strategy s = GetParam().strategy;
    s.optimizer = optimizer;
    expect_same_training(lagged_loop(job_, s), train(job_, s));
  }
}

TEST_P(PipelineFeatures, SwapsRecomputesAndABudgetChangeNoBit) {
  const Outcome base = train(job_, GetParam().strategy);
  expect_unchanged("swap all", base, [](Strategy& s) { s.swap = {"*"}; });
  expect_unchanged("swap on the first and last stages", base, [](Strategy& s) {
    s.swap = {"block0", "block3"};
  });
  expect_unchanged("recompute all", base, [](Strategy& s) { s.recompute = {"*"}; });
  expect_unchanged("recompute on two stages", base, [](Strategy& s) { s.recompute = {"block1", "block2"}; });
  expect_unchanged("recompute nothing", base, [](Strategy& s) { s.recompute_cheap = false; });
  expect_unchanged("both", base, [](Strategy& s) {
    s.swap = {"block0", "block3"}, s.recompute = {"block2"};
  });
  expect_unchanged("fuse nothing", base, [](Strategy& s) { s.fuse_pointwise = s.fuse_epilogues = false; });
  expect_unchanged("budget", base, [&](Strategy& s) { s.memory_budget = base.planned_peak; });
  Strategy s = GetParam().strategy;
  s.memory_budget = base.planned_peak - 1;
  const std::string why = message_of([&] {
    const Outcome out = train(job_, s);  // with a memory plan
    expect_same_training(base, out);
    EXPECT_LE(out.planned_peak, s.memory_budget);
  });
  if (!flushes(s))
    expect_words(why, {"budget of " + std::to_string(base.planned_peak - 1), "of which device ", "by 1 byte;",
                       "smallest budget that works with it is " + std::to_string(base.planned_peak)});
  else if (!why.empty())
    expect_words(why, {"budget of " + std::to_string(base.planned_peak - 1), "smallest budget that works"});
}

TEST_P(PipelineFeatures, SeveralModelsEqualTheLoop) {
  job_.seeds = {1, 2, 3};
  job_.rates = {0.05, 0.02, 0.01};
  Strategy s = GetParam().strategy;
  s.models = 3;
  const Outcome base = train(job_, s);
  expect_same_training(lagged_loop(job_, s), base);
  s.swap = {"block0"};
  s.recompute = {"block2"};
  expect_same_training(base, train(job_, s));
}

// Groups of every kind that a policy can make: all gradients of a device together, each by itself, or random
// ones with threads and times of their own.
TEST_P(PipelineFeatures, ReplicasHaveTheSameBitsUnderEveryAllReduce) {
  Strategy s = GetParam().strategy;
  s.replicas = 2;
  if (s.microbatches == 4) job_.batch_size = 16;
  const Outcome base = train(job_, s);
  Job exact = job_;
  exact.dtype = DType::f64;
  EXPECT_LE(largest_difference(lagged_loop(exact, s), train(exact, s)), 1e-12);
  if (flushes(s)) expect_same_training(train(job_, on_one_device(s)), base);
  const auto devices = gradient_layers(trace_job(job_, job_.batch_size / s.replicas / s.microbatches), s);
  for (const char* policy : {"se", "wfbp", "ddp"}) {
    SCOPED_TRACE(policy);
    s.fusion_groups = fusion_groups(devices, policy);
    expect_same_training(base, train(job_, s));
  }
  std::mt19937_64 random = generator(GetParam().text);
  s.fusion_groups.clear();
  for (const auto& layers : devices)
    for (const GradientLayer& layer : layers) {
      if (s.fusion_groups.empty() || &layer == layers.data() || draw_bool(random, 0.3)) {
        s.fusion_groups.push_back({.threads = draw_int(random, 1, 2)});
        if (draw_bool(random, 0.25)) s.fusion_groups.back().earliest_ms = 0.5;
      }
      auto& group = s.fusion_groups.back().parameters;
      group.insert(group.end(), layer.parameters.begin(), layer.parameters.end());
    }
  expect_same_training(base, train(job_, s));
}

TEST_P(PipelineFeatures, Bf16IsNearToF32AndKeepsItsBits) {
  Strategy s = GetParam().strategy;
  const Outcome f32 = train(job_, s);
  s.amp = DType::bf16;
  const Outcome base = train(job_, s);
  ASSERT_EQ(f32.losses.size(), base.losses.size());
  for (std::size_t b = 0; b < base.losses.size(); ++b)
    EXPECT_NEAR(base.losses[b][0], f32.losses[b][0], 0.03 * f32.losses[b][0]) << "batch " << b;
  EXPECT_NE(base.losses, f32.losses) << "bf16 rounds";
  if (flushes(s)) expect_same_training(train(job_, on_one_device(s)), base);
  const auto bf16 = [&](const std::string& what, auto change) {
    expect_unchanged(what, base, [&](Strategy& t) {
      t.amp = DType::bf16;
      change(t);
    });
  };
  bf16("free or in lockstep", [](Strategy& t) { t.lockstep = !t.lockstep; });
  bf16("swap", [](Strategy& t) { t.swap = {"*"}; });
  bf16("recompute", [](Strategy& t) { t.recompute = {"*"}; });
  bf16("recompute nothing", [](Strategy& t) { t.recompute_cheap = false; });
  bf16("fuse nothing", [](Strategy& t) { t.fuse_pointwise = t.fuse_epilogues = false; });
}

// Two replicas of three models, in bf16, with groups, swaps, recomputes, clipping, and a budget.
TEST_P(PipelineFeatures, AllTogetherHaveTheBitsOfThoseThatChangeThem) {
  if (GetParam().strategy.microbatches == 4) job_.batch_size = 16;
  job_.seeds = {1, 2, 3};
  job_.rates = {0.05, 0.02, 0.01};
  Strategy s = GetParam().strategy;
  s.models = 3;
  s.replicas = 2;
  s.amp = DType::bf16;
  s.gradients = {.clip_norm = 0.5, .clip_scope = ClipScope::stage};
  const Outcome base = train(job_, s);
  s.fusion_groups =
      fusion_groups(gradient_layers(trace_job(job_, job_.batch_size / s.replicas / s.microbatches), s), "se");
  s.swap = {"block0"};
  s.recompute = {"block1", "block2"};
  s.memory_budget = planned_peak(program_of(job_, s));
  expect_same_training(base, train(job_, s));
}

INSTANTIATE_TEST_SUITE_P(All, PipelineFeatures, ::testing::ValuesIn(all_ways()),
                         [](const auto& info) { return test_name(info.param.text); });

}  // namespace
}  // namespace tandem::testing
