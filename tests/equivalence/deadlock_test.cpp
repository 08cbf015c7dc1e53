// Ten ways in which pipelines deadlock elsewhere. Here each is refused before it runs, or runs and gives the
// bits of the loop. tests/schedule/verify_test.cpp plants deadlocks in Programs.
#include <algorithm>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>

#include "calling_kernels.h"
#include "expect_error.h"
#include "lagged_loop.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

// All later stages use the results of the first two, so values travel past stages in both directions.
struct Skips final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = 8}};
  nn::Linear a{*this, "a", {.in = 8, .out = 8}}, b{*this, "b", {.in = 8, .out = 8}},
      c{*this, "c", {.in = 8, .out = 8}};
  nn::Linear head{*this, "head", {.in = 8, .out = 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor s = relu(stem(flatten(x))), t = add(tanh(a(s)), s), u = mul(tanh(b(t)), s);
    return head(add(mul(c(u), s), t));
  }
};

Job skipping_job() {
  Job job = small_residual_job();
  job.model = [] { return std::make_unique<Skips>(); };
  job.drains = {6, 2};
  return job;
}

Strategy on_four(const std::string& schedule, int microbatches) {
  Strategy s = plain();
  s.schedule = schedule;
  s.stages = 4;
  s.cuts = {"a", "b", "c"};
  s.microbatches = microbatches;
  if (schedule == "interleaved") s.chunks = 2;
  return s;
}

// Refuses the schedule after the change, before anything runs.
void expect_refused(const std::function<void(PipelineSchedule&)>& change,
                    const std::vector<std::string>& words) {
  Strategy s = with_schedule(on_four("plain", 2), make_schedule("1f1b", {.stages = 4, .microbatches = 2}));
  ASSERT_NO_THROW(program_of(skipping_job(), s));
  change(*s.own_schedule);
  expect_error([&] { program_of(skipping_job(), s); }, words);
}

Task& task_of(PipelineSchedule& s, Phase phase, int stage, int microbatch) {
  return *std::ranges::find_if(s.tasks, [&](const Task& t) {
    return t.phase == phase && t.stage == stage && t.microbatch == microbatch;
  });
}

TEST(Deadlock, AStageThatStartsBeforeTheOneBeforeItIsRefused) {
  expect_refused(
      [](PipelineSchedule& s) {
        std::swap(task_of(s, Phase::forward, 0, 0), task_of(s, Phase::forward, 1, 0));
      },
      {"forward of micro-batch 0 on stage 1", "needs the forward of micro-batch 0 on stage 0"});
}

// 1F1B with too few forwards ahead: stage 0 waits for a gradient before it sends what that is made from.
TEST(Deadlock, ABackwardBeforeItsForwardHasLeftTheLastStageIsRefused) {
  expect_refused(
      [](PipelineSchedule& s) {
        std::swap(task_of(s, Phase::backward, 0, 0), task_of(s, Phase::forward, 3, 0));
      },
      {"backward of micro-batch 0 on stage 0", "needs the backward of micro-batch 0 on stage 1"});
}

TEST(Deadlock, AnUpdateBeforeItsLastGradientIsRefused) {
  expect_refused(
      [](PipelineSchedule& s) {
        std::swap(task_of(s, Phase::update, 0, 0), task_of(s, Phase::backward, 0, 1));
      },
      {"update of stage 0", "needs the backward of micro-batch 1 on stage 0"});
}

TEST(Deadlock, ATaskThatIsMissingOrDoubledIsRefused) {
  expect_refused([](PipelineSchedule& s) { task_of(s, Phase::forward, 2, 1).stage = 3; },
                 {"forward of micro-batch 1 on stage 3 twice"});
  expect_refused([](PipelineSchedule& s) { std::erase(s.tasks, task_of(s, Phase::backward, 1, 0)); },
                 {"no backward of micro-batch 0 on stage 1"});
}

TEST(Deadlock, ABarrierWithoutAllDevicesIsRefused) {
  expect_refused(
      [](PipelineSchedule& s) {
        s.tasks.push_back({Phase::barrier, 2, 0});
      },
      {"barrier after tick 0", "each device"});
}

// Neighbors send to each other at the same time, and a device sends to itself through others.
TEST(Deadlock, TransfersInBothDirectionsAndPastStagesRun) {
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    for (const int microbatches : {1, 2, 4}) {
      if (microbatches < 4 && (name == "pipedream-2bw" || (name == "interleaved" && microbatches < 2))) {
        EXPECT_THROW(program_of(skipping_job(), on_four(name, microbatches)), Error);
        continue;  // fewer micro-batches than the schedule can have
      }
      Strategy s = on_four(name, microbatches);
      expect_same_results(lagged_loop(skipping_job(), s), train(skipping_job(), s));
    }
  }
}

// No run is long enough to fill the pipeline.
TEST(Deadlock, RunsThatAreShorterThanThePipelineEnd) {
  Job job = skipping_job();
  job.drains = {1, 0, 1, 2, 1};
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const Strategy s = on_four(name, 4);
    expect_same_results(lagged_loop(job, s), train(job, s));
  }
}

// A unit has more commands than a lane's queue had room for.
TEST(Deadlock, MoreMicrobatchesThanAQueueHoldsRun) {
  Job job = skipping_job();
  job.batch_size = 256;
  job.drains = {3};
  for (const std::string name : {"1f1b", "pipedream-2bw"}) {
    SCOPED_TRACE(name);
    Strategy s = on_four(name, 256);
    s.verify = false;  // Session verifies the Program
    expect_same_results(lagged_loop(job, s), train(job, s));
  }
}

// The order in which lanes become ready differs from run to run; two replicas reduce beside the transfers.
TEST(Deadlock, LanesThatAreLateInAnyOrderGiveTheSameBits) {
  Job job = skipping_job();
  job.batch_size = 16;
  std::mt19937_64 random = generator("late lanes");
  const std::uint64_t seed = random();
  const CallingKernels kernels([&](const Launch& launch, const Tag& tag) {
    const std::uint64_t draw = std::hash<std::string>{}(tag.path) * 31 + seed +
                               static_cast<std::uint64_t>(launch.batch * 7 + launch.rank->rank * 13 +
                                                          tag.microbatch * 3 + static_cast<int>(tag.phase));
    std::this_thread::sleep_for(std::chrono::microseconds(draw * 2654435761 % 1000));
  });
  for (const std::string& name : schedule_names())
    for (const bool lockstep : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name << " lockstep " << lockstep);
      Strategy s = on_four(name, 4);
      s.replicas = 2;
      const Outcome prompt = train(job, s);
      s.lockstep = lockstep;
      s.kernels = &kernels.table();
      expect_same_results(prompt, train(job, s));
    }
}

// Each message occupies a link and arrives later, and a sender waits until its receiver has called.
TEST(Deadlock, SlowLinksGiveTheSameBits) {
  const Job job = skipping_job();
  CommOptions options;
  options.link = LinkModel{.latency = 2e-4, .bandwidth = 1e6};
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const Strategy s = on_four(name, 4);
    expect_same_results(train(job, s), train(job, s, thread_comms(s.ranks(), options)));
  }
}

}  // namespace
}  // namespace tandem::testing
