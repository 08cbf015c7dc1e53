// Runs that end before their last batch: whole, on all ranks after the same batch.
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <tandem/core/runtime/run_limit.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem::testing {
namespace {

using namespace std::chrono_literals;
const std::atomic<bool> kRuns{false}, kStopped{true};

TEST(RunLimit, BatchesThatHaveBegunGoOnAndOthersWaitUntilTheEndIsKnown) {
  RunLimit limit;
  EXPECT_TRUE(limit.admits(2, kRuns));
  EXPECT_EQ(3, limit.hold());
  EXPECT_TRUE(limit.admits(1, kRuns)) << "it has begun";
  std::atomic<int> admitted{-1};
  std::jthread lane([&] { admitted = limit.admits(4, kRuns) ? 1 : 0; });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(-1, admitted) << "it waits";
  limit.end_at(5);
  lane.join();
  EXPECT_EQ(1, admitted);
  EXPECT_FALSE(limit.admits(5, kRuns));
  EXPECT_EQ(5, limit.claim(6));
  EXPECT_EQ(4, limit.claim(4));
}

TEST(RunLimit, AClaimWaitsUntilTheEndIsKnown) {
  for (const std::int64_t end : {std::int64_t{0}, std::int64_t{7}, RunLimit::kNone}) {
    RunLimit limit;
    EXPECT_EQ(0, limit.hold());
    std::atomic<std::int64_t> claimed{-1};
    std::jthread claims([&] { claimed = limit.claim(16); });
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(-1, claimed) << "it waits";
    limit.end_at(end);
    claims.join();
    EXPECT_EQ(std::min<std::int64_t>(16, end), claimed);
  }
}

TEST(RunLimit, AStoppedLaneBeginsNothing) {
  RunLimit limit;
  EXPECT_EQ(0, limit.hold());
  EXPECT_FALSE(limit.admits(0, kStopped));
  EXPECT_EQ(0, limit.hold());
}

TEST(RunLimit, ARunThatGoesBackBeginsItsBatchesAgain) {
  RunLimit limit;
  EXPECT_EQ(200, limit.claim(200));
  limit.begin_at(100);
  EXPECT_EQ(100, limit.hold());
}

// Ends the run while it works on a batch.
class EndingHost final : public JobHost {
 public:
  EndingHost(const Job& job, RunLimit& limit, std::int64_t batch)
      : JobHost(job, 1), limit_(limit), batch_(batch) {}
  void fill(const HostInput& in) override {
    if (in.batch == batch_) limit_.end_at(limit_.hold());
    JobHost::fill(in);
  }

 private:
  RunLimit& limit_;
  const std::int64_t batch_;
};

TEST(RunLimit, ASessionThatEndsEarlyHasTheStateOfAShorterRun) {
  const Job job = small_residual_job();
  for (const char* schedule : {"1f1b", "pipedream", "dualpipe"})
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(std::string(schedule) + ", " + std::to_string(replicas));
      Strategy s;
      s.optimizer = SgdOptions{.momentum = 0.9};
      s.stages = 2;
      s.replicas = replicas;
      s.cuts = {"block1"};
      s.schedule = schedule;
      RunLimit limit;
      EndingHost ending(job, limit, 5);
      Session early(program_of(job, s), thread_comms(s.ranks()), ending);
      early.load(initial_state(job));
      const std::int64_t ran = early.run(0, 1000, {}, &limit);
      EXPECT_EQ(limit.end(), ran);
      EXPECT_GE(ran, 6);
      EXPECT_LT(ran, 20);
      EXPECT_EQ(0, early.run(ran, 5, {}, &limit)) << "nothing is left";
      JobHost host(job, 1);
      Session shorter(program_of(job, s), thread_comms(s.ranks()), host);
      shorter.load(initial_state(job));
      EXPECT_EQ(ran, shorter.run(0, ran));
      expect_same_state(shorter.state(), early.state());
      early.run(ran, 3);
      shorter.run(ran, 3);
      expect_same_state(shorter.state(), early.state());
    }
}

}  // namespace
}  // namespace tandem::testing
