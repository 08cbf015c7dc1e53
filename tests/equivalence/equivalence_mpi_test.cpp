// Ranks as MPI processes give the same bits as ranks as threads. mpirun starts it with 2 or 4 ranks.
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/mpi_comm.h>

#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

MpiSession* session = nullptr;

void expect_equal_to_threads(Strategy s, const std::vector<std::uint64_t>& seeds = {3}) {
  ASSERT_EQ(s.replicas * s.stages, session->size());
  s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  s.models = static_cast<int>(seeds.size());
  Job job = small_residual_job();
  job.drains = {5, 3};
  job.seeds = seeds;
  job.rates.assign(seeds.size(), 0.05);
  for (std::size_t m = 0; m < seeds.size(); ++m) job.rates[m] /= static_cast<double>(m + 1);
  const Outcome processes = train(job, s, session->comm());
  EXPECT_EQ(0, processes.timeline.dropped);
  if (session->rank() != s.stages - 1) return;
  const Outcome threads = train(job, s);
  expect_same_results(threads, processes);
}

TEST(MpiEquivalence, DataParallel) {
  expect_equal_to_threads({.replicas = session->size(), .microbatches = 2});
  expect_equal_to_threads(
      {.replicas = session->size(),
       .fusion_groups = {{{"head.weight", "head.bias"}, 2}, {{"stem.weight", "stem.bias"}}}});
}

TEST(MpiEquivalence, SeveralModels) {
  expect_equal_to_threads({.replicas = session->size()}, {3, 8, 5});
  expect_equal_to_threads({.stages = session->size(), .schedule = ScheduleKind::dualpipe}, {3, 8});
}

TEST(MpiEquivalence, Pipelines) {
  for (ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::pipedream, ScheduleKind::dualpipe})
    expect_equal_to_threads({.microbatches = kind == ScheduleKind::dualpipe ? 1 : 2,
                             .stages = session->size(),
                             .schedule = kind});
}

TEST(MpiEquivalence, TwoReplicasOfStages) {
  const int stages = session->size() / 2;
  expect_equal_to_threads({.replicas = 2,
                           .microbatches = 2,
                           .stages = stages,
                           .schedule = ScheduleKind::one_f_one_b,
                           .swap = {"block0"}});
  expect_equal_to_threads(
      {.replicas = 2, .stages = stages, .schedule = ScheduleKind::dualpipe, .recompute = {"block3"}});
}

// Two replicas of two stages (under four ranks), two models, fusion groups, a swap, under a budget.
TEST(MpiEquivalence, AllFeaturesTogether) {
  expect_equal_to_threads({.replicas = 2,
                           .stages = session->size() / 2,
                           .schedule = ScheduleKind::dualpipe,
                           .fusion_groups = {{{"head.weight", "head.bias"}, 3}},
                           .swap = {"block0"},
                           .memory_budget = 64 << 20},
                          {3, 8});
}

TEST(MpiEquivalence, RanksThatDisagreeOnTheProgramAreNamed) {
  Strategy s{.replicas = session->size()};
  s.optimizer = SgdOptions{.momentum = session->rank() == 1 ? 0.5 : 0.9};
  try {
    train(small_residual_job(), s, session->comm());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(
        std::string::npos,
        std::string(e.what()).find("the ranks disagree on the Program: rank 1 has another value than rank 0"))
        << e.what();
  }
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tandem::engine::MpiSession mpi;
  tandem::testing::session = &mpi;
  return RUN_ALL_TESTS();
}
