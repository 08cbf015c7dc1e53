// A session that swaps and recomputes under a memory plan: it allocates nothing once it runs, and survives
// allocations that fail.
#include <gtest/gtest.h>

#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/plan/build.h>
#include <tandem/plan/memory_budget.h>

#include "allocations.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

Strategy swaps_everything() {
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9};
  s.memory_plan = "vdnn";
  s.copy_link = {.bytes_per_ms = 1e7};
  return s;
}

TEST(MemoryPlanRun, TwoThousandStepsAllocateNothing) {
  Job job = convolutional_job();
  job.poison = false;
  JobHost host(job, 1);
  const Graph forward = trace_job(job, job.batch_size);
  Strategy s = swaps_everything();
  s.memory_budget = planned_peak(build(forward, s));
  Session session(build(forward, s), thread_comms(1), host);
  EXPECT_GT(session.program().memory[0].host, 0) << "it swaps";
  session.load(initial_state(job));
  session.run(0, 100);
  const std::int64_t peak = session.executed_peak();
  const long live = live_allocations();
  session.run(100, 1900);
  EXPECT_LE(live_allocations(), live + 1900 + 2) << "the host keeps a loss per batch, and nothing else stays";
  EXPECT_EQ(peak, session.executed_peak());
  EXPECT_LE(peak, s.memory_budget);
}

// Whatever allocation fails while a step is planned, built, or run, an exception says so, and the same calls
// succeed afterwards with the same losses.
TEST(MemoryPlanRun, AFailedAllocationIsAnException) {
  Job job = convolutional_job();
  job.poison = false;
  const auto losses = [&] {
    JobHost host(job, 1);
    Session session(build(trace_job(job, job.batch_size), swaps_everything()), thread_comms(1), host);
    session.load(initial_state(job));
    session.run(0, 2);
    return host.losses;
  };
  const auto expected = losses();
  const long before = allocations();
  losses();
  const long all = allocations() - before;
  int failed = 0;
  for (long k = 0; k < all; k += 1 + k / 16) {
    fail_allocation_after(k);
    try {
      losses();
    } catch (const std::exception&) {
      ++failed;
    }
    fail_allocation_after(-1);
    EXPECT_EQ(expected, losses()) << "after allocation " << k << " had failed";
  }
  if (all > 0) {
    EXPECT_GT(failed, 10);
  }
}

}  // namespace
}  // namespace tandem::testing
