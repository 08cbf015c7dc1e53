// A stage of a pipeline that throws or hangs ends all stages soon, under every schedule.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/plan/build.h>

#include "calling_kernels.h"
#include "expect_error.h"
#include "test_name.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kDevices = 4;

Strategy strategy_of(const std::string& schedule) {
  Strategy s = plain();
  s.schedule = schedule;
  s.microbatches = 4;
  s.stages = kDevices;
  if (schedule == "interleaved") {
    s.stages = 2 * kDevices;
    s.chunks = 2;
  }
  return s;
}

Job long_job() {
  Job job = small_residual_job();
  job.model = [] {
    return std::make_unique<nn::MlpResidual>(
        nn::MlpOptions{.in = 12, .hidden = 8, .classes = 5, .blocks = 8});
  };
  return job;
}

class PipelineStop : public ::testing::TestWithParam<std::string> {};

// In forward and in backward, on each device. Another session must go on.
TEST_P(PipelineStop, AStageThatThrowsEndsAllAndIsNamed) {
  const Job job = long_job();
  Strategy s = strategy_of(GetParam());
  for (const Phase phase : {Phase::forward, Phase::backward})
    for (int device = 0; device < kDevices; ++device) {
      SCOPED_TRACE(::testing::Message() << name_of(phase) << " on device " << device);
      const CallingKernels kernels([&](const Launch& launch, const Tag& tag) {
        if (launch.batch == 20 && launch.rank->device == device && tag.phase == phase)
          throw Error("the core is gone");
      });
      s.kernels = &kernels.table();
      JobHost host(job, s.microbatches);
      Session session(program_of(job, s), thread_comms(s.ranks()), host);
      session.load(initial_state(job));
      const auto begin = Clock::now();
      const std::string message = message_of([&] { session.run(0, 50); });
      EXPECT_LT(Clock::now() - begin, 3s);
      expect_words(message, {fmt::format("rank {}, batch 20, instruction ", device), "the core is gone"});
      EXPECT_FALSE(session.has_state()) << "all stages have updated by batch 20";
      expect_error([&] { session.run(0, 1); }, {"have given up", "new Comms"});
    }
}

// What a process would print at its deadline; the test releases the stage that hangs instead of ending it.
// A watch waits two seconds for others to end, so each schedule has one of the four stages hang.
TEST_P(PipelineStop, AStageThatHangsEndsAllAtTheDeadlineAndTheLanesAreListed) {
  const Job job = long_job();
  Strategy s = strategy_of(GetParam());
  const auto names = schedule_names();
  const int device = static_cast<int>(std::ranges::find(names, GetParam()) - names.begin()) % kDevices;
  SCOPED_TRACE(::testing::Message() << "on device " << device);
  std::atomic<bool> hangs{true};
  const CallingKernels kernels([&](const Launch& launch, const Tag& tag) {
    if (launch.batch == 5 && launch.rank->device == device && tag.phase == Phase::backward)
      while (hangs) std::this_thread::sleep_for(1ms);
  });
  s.kernels = &kernels.table();
  std::mutex mutex;
  std::string told;
  std::atomic<const Session*> running{nullptr};
  CommOptions options;
  options.watch = WatchOptions{.deadline = 200ms,
                               .tell =
                                   [&](const std::string& text) {
                                     const std::lock_guard lock(mutex);
                                     told += text + "\n";
                                   },
                               .end = [&] { hangs = false; },
                               .lanes =
                                   [&](int rank) {
                                     const Session* session = running;
                                     return session ? session->doing(rank) : "";
                                   }};
  JobHost host(job, s.microbatches);
  Clock::time_point begin;
  {
    Session session(program_of(job, s), thread_comms(s.ranks(), options), host);
    session.load(initial_state(job));
    running = &session;
    begin = Clock::now();
    expect_words(message_of([&] { session.run(0, 50); }), {"the deadline of 0.2 s passes", "has waited for"});
    running = nullptr;
  }
  EXPECT_LT(Clock::now() - begin, 3s);
  expect_words(told, {"the deadline passes while the lanes are in:\n",
                      fmt::format("rank {}: batch 5, instruction ", device),
                      fmt::format(", on device {} compute", device)});
  for (int other = 0; other < kDevices; ++other) expect_words(told, {fmt::format("rank {}: batch ", other)});
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineStop, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace tandem::testing
