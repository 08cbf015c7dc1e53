// The same job with ranks as MPI processes and as threads: the same bits. Run by mpirun with 2 or 4 ranks.
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/dist/mpi_comm.h>

#include "training_run.h"

namespace tandem {
namespace {

MpiSession* session = nullptr;

void expect_equal_to_threads(Strategy s) {
  s.sgd = {.momentum = 0.9, .weight_decay = 1e-3};
  if (s.replicas * s.stages != session->size()) return;  // meant for another number of ranks
  testing::Job job = testing::small_residual_job();
  job.drains = {5, 3};
  const testing::Outcome processes = testing::train(job, s, session->comm());
  EXPECT_EQ(0, processes.timeline.dropped);
  if (session->rank() != s.stages - 1) return;
  const testing::Outcome threads = testing::train(job, s);
  EXPECT_EQ(threads.losses, processes.losses);
  testing::expect_same_state(threads.state, processes.state);
}

TEST(MpiEquivalence, DataParallel) {
  for (int replicas : {2, 4}) expect_equal_to_threads({.replicas = replicas, .microbatches = 2});
}

TEST(MpiEquivalence, Pipelines) {
  for (int stages : {2, 4})
    for (ScheduleKind kind :
         {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::pipedream, ScheduleKind::dualpipe})
      expect_equal_to_threads(
          {.microbatches = kind == ScheduleKind::dualpipe ? 1 : 2, .stages = stages, .schedule = kind});
}

TEST(MpiEquivalence, TwoReplicasOfTwoStages) {
  expect_equal_to_threads({.replicas = 2,
                           .microbatches = 2,
                           .stages = 2,
                           .schedule = ScheduleKind::one_f_one_b,
                           .swap = {"block0"}});
  expect_equal_to_threads(
      {.replicas = 2, .stages = 2, .schedule = ScheduleKind::dualpipe, .recompute = {"block3"}});
}

TEST(MpiEquivalence, RanksThatDisagreeOnTheProgramAreNamed) {
  Strategy s{.replicas = session->size()};
  s.sgd = {.momentum = session->rank() == 1 ? 0.5 : 0.9};
  try {
    testing::train(testing::small_residual_job(), s, session->comm());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string::npos,
              std::string(e.what()).find("the ranks disagree on the Program: rank 1 has another than rank 0"))
        << e.what();
  }
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tandem::MpiSession mpi;
  tandem::session = &mpi;
  return RUN_ALL_TESTS();
}
