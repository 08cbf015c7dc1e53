// What a Session measures, and what can change between its runs without another Program.
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/ops/kernels.h>
#include <tandem/plan/build.h>

#include "allocations.h"
#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// A transfer ends on no rank before it begins on the other: the ranks' spans share a clock.
TEST(SessionTimeline, TimelinesOfAllRanksShareAClock) {
  const Job job = small_residual_job();
  Strategy s;
  s.stages = 4;
  const Program program = program_of(job, s);
  JobHost host(job, 1);
  Session session(program, thread_comms(program.ranks()), host, {.spans = 10'000});
  session.load(initial_state(job));
  session.run(0, 20);
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<Span, Span>> transfers;  // send, receive
  for (const Span& span : session.timeline().spans) {
    const Instruction& instruction = program.instruction(span.instruction);
    auto& ends = transfers[{instruction.channel, span.batch}];
    if (program.lane_of(span.instruction).kind == LaneKind::send) ends.first = span;
    if (program.lane_of(span.instruction).kind == LaneKind::receive) ends.second = span;
  }
  int checked = 0;
  for (const auto& [key, ends] : transfers) {
    if (key.first < 0) continue;
    EXPECT_LE(ends.first.begin, ends.second.end);
    ++checked;
  }
  EXPECT_GE(checked, 20 * 6);
}

TEST(SessionTimeline, MeasuresAnyProgramOnAndOffBetweenRuns) {
  const Job job = small_residual_job();
  const Program program = program_of(job, {});
  JobHost host(job, 1);
  Session session(program, {}, host);
  const ProgramHandle evaluate = session.add(program_of(job, for_evaluation({})), host);
  session.load(initial_state(job));
  session.run(0, 2);
  EXPECT_TRUE(session.timeline().spans.empty());
  session.measure(1000);
  session.measure(1000, evaluate);
  session.run(2, 3);
  session.run(0, 1, evaluate);
  EXPECT_EQ(3 * std::ssize(program.instructions), std::ssize(session.timeline().spans));
  EXPECT_EQ(std::ssize(session.program(evaluate).instructions),
            std::ssize(session.timeline(0, evaluate).spans));
  session.measure(0);
  session.run(5, 1);
  EXPECT_TRUE(session.timeline().spans.empty());
  EXPECT_EQ(0, session.timeline().dropped);
  session.drop(evaluate);
  EXPECT_THROW(session.measure(10, evaluate), Error);
}

TEST(SessionTimeline, SpansOfCollectivesSayWhenAllRanksHadCalled) {
  const Job job = small_residual_job();
  Strategy s;
  s.replicas = 2;
  s.fusion_groups = {{{"head.weight", "head.bias"}, 2}};
  const Program program = program_of(job, s);
  JobHost host(job, 1);
  Session session(program, thread_comms(2), host, {.spans = 10'000});
  session.load(initial_state(job));
  session.run(0, 5);
  int checked = 0, by_two = 0;
  for (const Span& span : session.timeline().spans) {
    if (program.lane_of(span.instruction).kind != LaneKind::collective) continue;
    EXPECT_LE(span.begin, span.met);
    EXPECT_LE(span.met, span.end);
    ++checked;
    by_two += span.threads == 2;
  }
  EXPECT_GE(checked, 2 * 5 * 3);
  EXPECT_EQ(2 * 5, by_two);
}

TEST(SessionTimeline, ThreadsOfCollectivesChangeBetweenRunsAndNoBitDoes) {
  const Job job = small_residual_job();
  Strategy s;
  s.replicas = 2;
  const Program program = program_of(job, s);
  const auto trained = [&](bool changes) {
    JobHost host(job, 1);
    Session session(program, thread_comms(2), host, {.spans = 10'000});
    session.load(initial_state(job));
    for (int run = 0; run < 4; ++run) {
      std::map<std::int64_t, int> threads;
      for (const Instruction& i : program.instructions)
        if (changes && i.op->name() == "all_reduce")
          threads[i.channel] = 1 + static_cast<int>((i.channel + run) % 3);
      session.set_threads(threads);
      session.run(3 * run, 3);
      for (const Span& span : session.timeline().spans) {
        const auto set = threads.find(program.instruction(span.instruction).channel);
        if (set != threads.end()) {
          EXPECT_EQ(set->second, span.threads);
        }
      }
    }
    expect_error([&] { session.set_threads({{999, 2}}); }, {"channel 999", "no collective"});
    expect_error([&] { session.set_threads({{program.instructions.back().channel, 0}}); }, {"0 threads"});
    return session.state();
  };
  expect_same_state(trained(false), trained(true));
}

// Takes no results, which would allocate.
struct QuietHost final : JobHost {
  using JobHost::JobHost;
  void deliver(const HostResult&) override {}
};

// What a run allocates does not depend on the number of its steps. Reference kernels: oneDNN allocates.
TEST(SessionTimeline, AReplayedStepAllocatesNothingWithAnyThreads) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "sanitizers replace the allocator that this test counts";
#else
  const Job job = wide_residual_job();
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring})
    for (const int threads : {1, 2, 3}) {
      Strategy s;
      s.replicas = 2;
      s.kernels = &reference_kernels();
      s.fusion_groups = {
          {{"head.weight", "head.bias", "block0.first.weight", "block0.second.weight"}, threads}};
      QuietHost host(job, 1);
      Session session(program_of(job, s), thread_comms(2, {.collective = algorithm}), host);
      session.load(initial_state(job));
      session.run(0, 3);
      const auto allocated = [&](std::int64_t batches) {
        const long before = allocations();
        session.run(3, batches);
        return allocations() - before;
      };
      EXPECT_EQ(allocated(2), allocated(40)) << threads;
    }
#endif
}

}  // namespace
}  // namespace tandem::testing
