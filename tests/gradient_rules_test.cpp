// Clipping, and skipping batches whose gradients are not finite.
#include <atomic>
#include <cmath>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/plan/build.h>
#include <tandem/plan/session.h>

#include "training_run.h"

namespace tandem {
namespace {

using testing::expect_same_state;
using testing::Job;
using testing::JobHost;
using testing::largest_difference;
using testing::small_residual_job;
using testing::train;

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
  EXPECT_EQ(a.losses, b.losses);
  expect_same_state(a.state, b.state);
}

TEST(GradientRules, TheNormIsThatOfAllStagesAndRanks) {
  const Job job = small_residual_job(DType::f64);
  const auto one = train(job, clipped(0.1));
  EXPECT_GT(largest_difference(one, train(job, clipped(1e6))), 1e-3) << "the limit is reached";
  for (const auto& [stages, replicas, microbatches] :
       {std::tuple{2, 1, 2}, {3, 1, 1}, {1, 2, 1}, {2, 2, 2}}) {
    Strategy s = clipped(0.1);
    s.stages = stages;
    s.replicas = replicas;
    s.microbatches = microbatches;
    if (stages > 1) s.schedule = ScheduleKind::one_f_one_b;
    EXPECT_LE(largest_difference(one, train(job, s)), 1e-12)
        << stages << " " << replicas << " " << microbatches;
  }
}

TEST(GradientRules, EveryModelIsClippedByItself) {
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
struct Spoilt : JobHost {
  using JobHost::JobHost;
  void fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
            std::span<std::byte> out) override {
    JobHost::fill(name, batch, microbatch, rank, out);
    if (name == "images" && batch == 3) reinterpret_cast<float*>(out.data())[1] = NAN;
  }
};

TEST(GradientRules, ABatchThatIsNotFiniteChangesNoState) {
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
        if (stages > 1) s.schedule = ScheduleKind::gpipe;
        if (adam) s.optimizer = AdamOptions{};
        const ThreadWorld world(stages);
        std::vector<std::unique_ptr<Comm>> comms;
        for (int r = 0; stages > 1 && r < stages; ++r) comms.push_back(world.comm(r));
        Spoilt host(job, 1);
        Session session(build(testing::trace_job(job, job.batch_size), s), std::move(comms), host);
        session.load(testing::initial_state(job));
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

TEST(GradientRules, SchedulesWhoseStagesUpdateApartAreRefused) {
  const Job job = small_residual_job();
  Strategy s = clipped(1);
  s.stages = 2;
  s.schedule = ScheduleKind::dualpipe;
  try {
    build(testing::trace_job(job, job.batch_size), s);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("use one that flushes"), std::string::npos) << e.what();
  }
  s.gradients = {.clip_value = 0.01};
  const auto clipped_elements = train(job, s);
  s.gradients = {};
  EXPECT_GT(largest_difference(clipped_elements, train(job, s)), 1e-4);
  s.gradients.clip_norm = -1;
  EXPECT_THROW(build(testing::trace_job(job, job.batch_size), s), Error);
}

}  // namespace
}  // namespace tandem
