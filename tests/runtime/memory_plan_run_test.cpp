// A session that swaps and recomputes under a memory plan: it allocates nothing once it runs, and survives
// allocations that fail.
#include <gtest/gtest.h>

#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
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
// succeed afterwards with the same losses. `next` returns the allocation that fails after the k-th has.
void expect_failures_are_exceptions(const Job& job, Strategy strategy, long (*next)(long k)) {
  strategy.kernels = &reference_kernels();  // oneDNN's calls end the process if they cannot allocate
  const Graph forward = trace_job(job, job.batch_size);
  const auto losses = [&] {
    JobHost host(job, 1);
    Session session(build(forward, strategy), thread_comms(1), host);
    EXPECT_GT(session.program().memory[0].host, 0) << "it swaps";
    session.load(initial_state(job));
    session.run(0, 2);
    return host.losses;
  };
  const auto expected = losses();
  const long before = allocations();
  losses();
  const long all = allocations() - before;
  long failed = 0, tried = 0;
  for (long k = 0; k < all; k = next(k), ++tried) {
    fail_allocation_after(k);
    try {
      losses();
    } catch (const std::exception&) {
      ++failed;
    }
    fail_allocation_after(-1);
    if (tried % 50 == 0 || next(k) >= all) {
      EXPECT_EQ(expected, losses()) << "after allocation " << k << " had failed";
    }
  }
  EXPECT_GE(failed, tried / 2);  // a sanitizer's allocator counts and fails none
}

TEST(MemoryPlanRun, AFailedAllocationIsAnException) {
  Job job = convolutional_job();
  job.poison = false;
  expect_failures_are_exceptions(job, swaps_everything(), [](long k) { return k + 1 + k / 16; });
}

struct TinyNet : nn::Module {
  nn::Linear first{*this, "first", {.in = 12, .out = 4}}, head{*this, "head", {.in = 4, .out = 5}};
  Tensor forward(const Tensor& x) override { return head(relu(first(flatten(x)))); }
};
Job tiny_job() {
  Job job = small_residual_job();
  job.poison = false;
  job.batch_size = 2;
  job.model = [] { return std::make_unique<TinyNet>(); };
  return job;
}

TEST(MemoryPlanRun, EveryFailedAllocationIsAnException) {
  Strategy s = swaps_everything();
  s.optimizer = SgdOptions{};
  expect_failures_are_exceptions(tiny_job(), s, [](long k) { return k + 1; });
}

TEST(MemoryPlanRun, AFailedAllocationOfAPairIsAnException) {
  Strategy pair = swaps_everything();
  pair.models = 2;
  pair.arrays = {1, 1};
  expect_failures_are_exceptions(with_models(tiny_job(), 2), pair, [](long k) { return k + 7; });
}

}  // namespace
}  // namespace tandem::testing
