// Ranks that plan their all-reduces together as processes do: each has a Session of its own, and here a
// thread.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/all_reduce_policies.h>
#include <tandem/plan/build.h>
#include <tandem/train/all_reduce_tuning.h>

#include "expect_error.h"
#include "ranks.h"
#include "training_run.h"

namespace tandem::testing {
namespace {

constexpr int kRanks = 2, kRoot = 1;

// While it is set, this thread's rank has no memory for the kernels of all-reduces.
thread_local bool is_starved = false;

KernelPtr starved(const KernelSpec& /*spec*/) {
  if (is_starved) throw Error("out of memory: 1.0 MB were requested");
  return nullptr;  // the next table's
}

const KernelTable& kernels_of_rank() {
  static const KernelTable table = [] {
    KernelTable t("cpu", &cpu_kernels());
    t.add("all_reduce", starved);
    return t;
  }();
  return table;
}

struct Rank {
  std::vector<AllReduceReport> reports;
  std::uint64_t program = 0;  // hash
  StateDict state;
};

enum class Fails { never, to_build, to_prepare };

struct Scene {
  AllReduceOptions options{.policy = "libra", .drift = {}, .far_off = 1e9};
  std::int64_t batches = 60, per_call = 20;
  Fails fails = Fails::never;  // of rank 0
  int at = -1;                 // the Program that it cannot make, counted from 0
};

// One rank's part of a run that trains `scene.batches` batches.
Rank train_rank(const Scene& scene, std::unique_ptr<Comm> comm, Comm& talk) {
  const Job job = small_residual_job();
  Strategy strategy;
  strategy.replicas = kRanks;
  strategy.kernels = &kernels_of_rank();
  const Graph forward = trace_job(job, job.batch_size / kRanks);
  JobHost host(job, 1);
  std::vector<std::unique_ptr<Comm>> comms;
  const bool may_fail = comm->rank() == 0;
  comms.push_back(std::move(comm));
  Session session(build(forward, strategy), std::move(comms), host);
  session.load(initial_state(job));
  int built = 0;
  const auto with = [&](const std::vector<FusionGroup>& groups) {
    is_starved = false;
    const bool fails = may_fail && built++ == scene.at;
    if (fails && scene.fails == Fails::to_build) throw Error("out of memory: 2.0 MB were requested");
    Strategy s = strategy;
    s.fusion_groups = groups;
    Program program = build(forward, s);
    is_starved = fails && scene.fails == Fails::to_prepare;
    return program;
  };
  AllReduceTuning tuning(session, host, with, all_reduce_key(forward, strategy, 4, &talk, kRoot),
                         scene.options, scene.batches, RankTalk(&talk, kRoot));
  Rank rank;
  for (std::int64_t batch = 0; batch < scene.batches;) {
    const bool was_planned = tuning.is_planned();
    batch += tuning.run(batch, std::min(scene.per_call, scene.batches - batch));
    is_starved = false;
    if (!was_planned && tuning.is_planned()) rank.reports.push_back(tuning.report());
  }
  rank.program = hash(session.program(tuning.program()));
  rank.state = session.state(kRoot);
  return rank;
}

std::vector<Rank> train_ranks(const Scene& scene) {
  ThreadWorld runs(kRanks), talks(kRanks);
  std::vector<Rank> ranks(kRanks);
  run_lanes(kRanks, [&](int rank) {
    const auto talk = talks.comm(rank);
    try {
      ranks[static_cast<std::size_t>(rank)] = train_rank(scene, runs.comm(rank), *talk);
    } catch (const std::exception& e) {
      runs.abort(e.what());
      talks.abort(e.what());
      throw;
    }
  });
  EXPECT_EQ(ranks[0].program, ranks[1].program) << "all run the same Program";
  EXPECT_EQ(ranks[0].reports.size(), ranks[1].reports.size());
  return ranks;
}

// The Programs are: all gradients together, four random groupings, the plan.
TEST(AllReduceRanks, AProgramThatOneRankCannotMakeIsLeftOutByAll) {
  const std::vector<Rank> plain = train_ranks({});
  ASSERT_EQ(plain[kRoot].reports.size(), 1u);
  EXPECT_EQ(plain[kRoot].reports[0].batches, kMostTuningBatches);
  for (const Fails fails : {Fails::to_build, Fails::to_prepare})
    for (const int at : {0, 1, 2, 4, 5}) {
      SCOPED_TRACE(::testing::Message() << "Program " << at << (fails == Fails::to_build ? ", built" : ""));
      const std::vector<Rank> ranks = train_ranks({.fails = fails, .at = at});
      expect_same_state(ranks[kRoot].state, plain[kRoot].state);
      ASSERT_EQ(ranks[kRoot].reports.size(), 1u);
      const AllReduceReport& report = ranks[kRoot].reports[0];
      const bool is_needed = at == 0 || at == 5;
      EXPECT_EQ(report.devices[0].plan.groups.empty(), is_needed);
      for (const Rank& rank : ranks)
        EXPECT_EQ(is_needed, !rank.reports.at(0).warnings.empty() &&
                                 rank.reports[0].warnings.back().starts_with(
                                     "the all-reduces are not planned: rank 0: out of memory"));
      if (!is_needed) {
        EXPECT_EQ(report.batches, kMostTuningBatches - 7);
      }
    }
}

TEST(AllReduceRanks, AllPlanAgainWhenBackwardDrifts) {
  Scene scene{.batches = 3 * kLeastBatchesPerPlan};
  scene.options.drift = 0;  // no two measurements are equal
  const std::vector<Rank> ranks = train_ranks(scene);
  for (const Rank& rank : ranks) {
    ASSERT_GE(rank.reports.size(), 2u);
    EXPECT_TRUE(rank.reports[0].reason.empty());
    expect_words(rank.reports[1].reason, {"backward takes"});
  }
}

TEST(AllReduceRanks, TheReportSaysWhyNoGroupingWasMeasured) {
  const Job job = small_residual_job();
  Strategy strategy;
  strategy.replicas = kRanks;
  const Graph forward = trace_job(job, job.batch_size / kRanks);
  JobHost host(job, 1);
  Session session(build(forward, strategy), thread_comms(kRanks), host);
  session.load(initial_state(job));
  const auto build_together = [&](const std::vector<FusionGroup>& groups) {
    if (groups.size() > 1) throw Error("no memory for several groups");
    Strategy s = strategy;
    s.fusion_groups = groups;
    return build(forward, s);
  };
  AllReduceTuning tuning(session, host, build_together, all_reduce_key(forward, strategy, 4),
                         {.policy = "libra"});
  for (std::int64_t batch = 0; !tuning.is_planned();) batch += tuning.run(batch, 40);
  expect_words(tuning.report().warnings.at(0), {"not planned: no memory for several groups"});
}

TEST(RankTalk, AllRanksHearWhatPreventedOne) {
  run_ranks(3, [](Comm& comm) {
    const RankTalk talk(&comm, 1);
    const auto fails = [&](int rank) {
      if (comm.rank() == rank) throw Error(fmt::format("no room on {}", rank));
    };
    EXPECT_EQ(talk.on_all([] {}), "");
    EXPECT_EQ(talk.on_all([&] { fails(2); }), "rank 2: no room on 2");
    EXPECT_EQ(talk.on_root([&] { fails(1); }), "no room on 1");
    EXPECT_EQ(talk.on_root([&] { fails(0); }), "") << "only the root is called";
    EXPECT_EQ(talk.from_root(comm.rank() + 5), 6);
    EXPECT_EQ(talk.from_root(std::string(static_cast<std::size_t>(comm.rank()), 'x')), "x");
  });
}

}  // namespace
}  // namespace tandem::testing
