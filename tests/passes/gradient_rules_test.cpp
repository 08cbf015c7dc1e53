// Clipping, and skipping batches whose gradients are not finite.
#include <atomic>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

Strategy clipped(double norm) {
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  s.gradients.clip_norm = norm;
  return s;
}

TEST(GradientRules, AnUnreachedLimitChangesNoBit) {
  const Job job = small_residual_job();
  Strategy s = clipped(1e6);
  s.gradients.clip_value = 1e6;
  s.gradients.skip_non_finite = true;
  Strategy plain = s;
  plain.gradients = {};
  const auto a = train(job, s), b = train(job, plain);
  expect_same_results(a, b);
}

// All gradients must wait for the last one; nothing else is kept longer or twice.
TEST(GradientRules, SkippingKeepsTheGradientsAndNoOtherCopies) {
  const Job job = small_residual_job();
  const auto model = job.model();
  for (const Optimizer& optimizer : {Optimizer(SgdOptions{.momentum = 0.9}), Optimizer(AdamOptions{})}) {
    Strategy s{.optimizer = optimizer};
    const auto plain = train(job, s);
    s.gradients.skip_non_finite = true;
    const auto skipping = train(job, s);
    std::int64_t gradients = 0;
    for (const auto& [path, p] : model->named_parameters())
      if (!p->buffer) gradients += p->tensor.type().bytes() + 64;
    EXPECT_LE(skipping.planned_peak, plain.planned_peak + gradients);
    expect_same_state(plain.state, skipping.state);
  }
}

TEST(GradientRules, TheNormCoversAllStagesAndRanks) {
  const Job job = small_residual_job(DType::f64);
  const auto one = train(job, clipped(0.1));
  EXPECT_GT(largest_difference(one, train(job, clipped(1e6))), 1e-3) << "the limit must have an effect";
  for (const auto& [stages, replicas, microbatches] :
       {std::tuple{2, 1, 2}, {3, 1, 1}, {1, 2, 1}, {2, 2, 2}}) {
    Strategy s = clipped(0.1);
    s.stages = stages;
    s.replicas = replicas;
    s.microbatches = microbatches;
    if (stages > 1) s.schedule = "1f1b";
    EXPECT_LE(largest_difference(one, train(job, s)), 1e-12)
        << stages << " " << replicas << " " << microbatches;
  }
}

TEST(GradientRules, EveryModelIsClippedSeparately) {
  Job job = small_residual_job();
  job.seeds = {3, 8, 5};
  job.rates = {0.1, 0.05, 0.02};
  const auto together = train(job, clipped(0.2));
  for (std::size_t m = 0; m < job.seeds.size(); ++m) {
    Job alone = job;
    alone.seeds = {job.seeds[m]};
    alone.rates = {job.rates[m]};
    const auto out = train(alone, clipped(0.2));
    for (std::size_t b = 0; b < out.losses.size(); ++b)
      EXPECT_NEAR(out.losses[b][0], together.losses[b][m], 1e-6) << "model " << m << " batch " << b;
  }
}

// A host whose batch 3 is not finite.
struct Spoiled : JobHost {
  using JobHost::JobHost;
  void fill(const HostInput& in) override {
    JobHost::fill(in);
    if (in.name == "images" && in.batch == 3) in.set(1, NAN);
  }
};

TEST(GradientRules, ANonFiniteBatchChangesNoState) {
  for (const bool images : {false, true})
    for (const int stages : {1, 2})
      for (const bool adam : {false, true}) {
        Job job = small_residual_job();
        if (images) {
          job.sample = {8, 8, 3};
          job.model = [] {
            return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {4, 8, 8}});
          };
        }
        Strategy s = clipped(1);
        s.gradients.skip_non_finite = true;
        s.stages = stages;
        if (stages > 1) s.schedule = "gpipe";
        if (adam) s.optimizer = AdamOptions{};
        Spoiled host(job, 1);
        Session session(program_of(job, s), thread_comms(s.ranks()), host);
        session.load(initial_state(job));
        session.run(0, 3);
        const auto before = session.state();
        session.run(3, 1);
        expect_same_state(before, session.state());
        EXPECT_TRUE(std::isnan(host.losses.at(3).at(0)));
        session.run(4, 2);
        EXPECT_TRUE(std::isfinite(host.losses.at(5).at(0)));
        EXPECT_NE(before.begin()->second.values(), session.state().begin()->second.values());
      }
}

// The scale is a power of two, so only values that would underflow have other bits.
TEST(LossScale, ChangesNoBit) {
  struct Layout {
    int stages, replicas, microbatches;
    std::vector<std::uint64_t> seeds;
  };
  for (const auto& [stages, replicas, microbatches, seeds] : std::vector<Layout>{{1, 1, 1, {1}},
                                                                                 {2, 1, 2, {1}},
                                                                                 {3, 1, 1, {1}},
                                                                                 {1, 2, 1, {1}},
                                                                                 {1, 1, 2, {3, 8}},
                                                                                 {2, 2, 2, {3, 8}}}) {
    Job job = small_residual_job();
    job.seeds = seeds;
    job.rates.assign(seeds.size(), 0.05);
    Strategy s = clipped(0.1);
    s.stages = stages;
    s.replicas = replicas;
    s.microbatches = microbatches;
    if (stages > 1) s.schedule = "1f1b";
    const auto plain = train(job, s);
    s.gradients.loss_scale = LossScale{.initial = 1024, .growth_interval = 3};
    auto scaled = train(job, s);
    EXPECT_EQ(scaled.losses, plain.losses);
    const auto batches = static_cast<int>(plain.losses.size());
    for (const double scale : scaled.state.at(std::string(kLossScale)).values())
      EXPECT_EQ(scale, 1024 * std::pow(2, batches / 3));
    for (const double row : scaled.state.at(std::string(kFiniteBatches)).values())
      EXPECT_EQ(row, batches % 3);
    scaled.state.erase(std::string(kLossScale));
    scaled.state.erase(std::string(kFiniteBatches));
    expect_same_state(scaled.state, plain.state);
  }
}

// A host whose images are large, and therefore the first module's gradients.
struct Loud : JobHost {
  using JobHost::JobHost;
  void fill(const HostInput& in) override {
    JobHost::fill(in);
    if (in.name != "images") return;
    for (float& pixel : in.as<float>()) pixel *= 1000;
  }
};

TEST(LossScale, HalvesUntilGradientsAreFinite) {
  Job job = small_residual_job();
  Strategy s = clipped(1e6);
  s.gradients.loss_scale = LossScale{.initial = 0x1p126};
  Loud host(job, 1);
  Session session(program_of(job, s), thread_comms(s.ranks()), host);
  session.load(initial_state(job));
  int skipped = 0;
  for (bool updated = false; !updated && skipped < 126; ++skipped) {
    const auto before = session.state();
    session.run(skipped, 1);
    auto after = session.state();
    const double scale = after.at(std::string(kLossScale)).values()[0];
    updated = scale == std::ldexp(1, 126 - skipped);
    if (!updated) {
      EXPECT_EQ(scale, std::ldexp(1, 125 - skipped));
      for (const auto& [path, tensor] : initial_state(job))
        EXPECT_EQ(before.at(path).values(), after.at(path).values());
    }
  }
  EXPECT_GT(skipped, 1) << "the first scale was too large";
  EXPECT_LT(skipped, 60);
}

// A host whose images are black, so that most gradients are zero.
struct Quiet : JobHost {
  using JobHost::JobHost;
  void fill(const HostInput& in) override {
    JobHost::fill(in);
    if (in.name == "images") std::ranges::fill(in.bytes, std::byte{0});
  }
};

TEST(LossScale, GrowsToItsLimitAndNeverToInfinity) {
  const Job job = small_residual_job();
  Strategy s = clipped(1e6);
  s.gradients.loss_scale = LossScale{.initial = 0x1p125, .growth_interval = 1};
  Quiet host(job, 1);
  Session session(program_of(job, s), thread_comms(s.ranks()), host);
  session.load(initial_state(job));
  session.run(0, 5);
  const auto before = session.state();
  EXPECT_EQ(before.at(std::string(kLossScale)).values()[0], 0x1p126);
  session.run(5, 1);
  EXPECT_NE(before.at("head.bias").values(), session.state().at("head.bias").values()) << "updated";
}

TEST(LossScale, AModelWithNonFiniteGradientsHalvesOnlyItsOwn) {
  Job job = small_residual_job();
  job.seeds = {3, 8};
  job.rates = {0.05, NAN};  // the second model's weights are lost at once
  Strategy s = clipped(1e6);
  s.models = 2;
  s.gradients.loss_scale = LossScale{.initial = 4, .growth_interval = 2};
  const auto state = [&](int batches) {
    JobHost host(job, 1);
    Session session(program_of(job, s), thread_comms(s.ranks()), host);
    session.load(initial_state(job));
    session.run(0, batches);
    return session.state().at(std::string(kLossScale)).values();
  };
  EXPECT_EQ(state(1), (std::vector<double>{4, 4}));
  EXPECT_EQ(state(2), (std::vector<double>{8, 2}));
  EXPECT_EQ(state(5), (std::vector<double>{16, 1}));  // never below
}

TEST(LossScale, MustBeAPowerOfTwo) {
  for (const LossScale& bad : std::vector<LossScale>{{.initial = 3},
                                                     {.initial = 0.5},
                                                     {.initial = -2},
                                                     {.initial = NAN},
                                                     {.initial = INFINITY},
                                                     {.growth_interval = 0},
                                                     {.growth_interval = (1 << 24) + 1}})
    EXPECT_THROW(check(bad), Error) << bad.initial << " " << bad.growth_interval;
  check(LossScale{});
}

TEST(GradientRules, SchedulesWhoseStagesUpdateAtDifferentTimesAreRefused) {
  const Job job = small_residual_job();
  Strategy s = clipped(1);
  s.stages = 2;
  const auto expect_refused = [&] { expect_error([&] { program_of(job, s); }, {"use one that flushes"}); };
  s.schedule = "pipedream";  // two stages: both update in one unit,
  EXPECT_NO_THROW(program_of(job, s));
  s.lockstep = true;  // but between different barriers
  expect_refused();
  s.lockstep = false;
  s.schedule = "dualpipe";
  expect_refused();
  s.gradients = {.loss_scale = LossScale{}};
  EXPECT_THROW(program_of(job, s), Error);
  s.gradients = {.clip_value = 0.01};
  const auto clipped_elements = train(job, s);
  s.gradients = {};
  EXPECT_GT(largest_difference(clipped_elements, train(job, s)), 1e-4);
  s.gradients = {.clip_norm = 0.01, .clip_scope = ClipScope::stage};
  EXPECT_NO_THROW(program_of(job, s));
  s.gradients.clip_norm = -1;
  EXPECT_THROW(program_of(job, s), Error);
}

// Forward of the next batch would read running statistics before all gradients of this one are known.
TEST(GradientRules, RunningStatisticsOfASkippedBatchNeedAFlush) {
  const Job job = convolutional_job();
  for (const GradientRules& rules :
       {GradientRules{.skip_non_finite = true}, GradientRules{.loss_scale = LossScale{}}}) {
    Strategy s = plain();
    s.gradients = rules;
    s.stages = 2;
    s.schedule = "pipedream";
    expect_error([&] { program_of(job, s); }, {"running_mean", "use one that flushes"});
    s.schedule = "1f1b";
    EXPECT_NO_THROW(program_of(job, s));
  }
}

}  // namespace
}  // namespace tandem::testing
