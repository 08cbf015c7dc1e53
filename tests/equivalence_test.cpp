// Rule 2: every pass on or off gives the same losses.
#include <gtest/gtest.h>

#include "training_run.h"

namespace tandem {
namespace {

using testing::expect_same_state;
using testing::Job;
using testing::Outcome;
using testing::small_residual_job;
using testing::train;

Strategy plain() {
  Strategy s;
  s.sgd = {.momentum = 0.9, .weight_decay = 1e-3};
  return s;
}

TEST(Equivalence, PlainTrainingLearns) {
  Job job = small_residual_job();
  job.drains = {40};
  const Outcome out = train(job, plain());
  ASSERT_EQ(40u, out.losses.size());
  EXPECT_EQ(out.planned_peak, out.executed_peak);
}

TEST(Equivalence, FlushSchedulesEqualAccumulationBitwise) {
  for (DType dtype : {DType::f32, DType::f64})
    for (int microbatches : {1, 2, 4}) {
      const Job job = small_residual_job(dtype);
      Strategy s = plain();
      s.microbatches = microbatches;
      const Outcome reference = train(job, s);
      for (ScheduleKind kind : {ScheduleKind::plain, ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
        for (int stages : {1, 2, 4}) {
          SCOPED_TRACE(::testing::Message() << name_of(kind) << " stages " << stages << " microbatches " << microbatches);
          s.schedule = kind;
          s.stages = stages;
          const Outcome out = train(job, s);
          EXPECT_EQ(reference.losses, out.losses);
          expect_same_state(reference.state, out.state);
          EXPECT_EQ(out.planned_peak, out.executed_peak);
        }
    }
}

}  // namespace
}  // namespace tandem
