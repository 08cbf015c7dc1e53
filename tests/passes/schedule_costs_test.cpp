// What a stage holds under each schedule, against docs/pipelines.md and against Programs.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/pipeline/schedule_costs.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(ScheduleCosts, HeldActivationsAndVersionsAreThoseOfTheTable) {
  for (int n = 1; n <= 8; ++n)
    for (int k = 0; k < n; ++k) {
      const auto expect = [&](const std::string& name, int microbatches, int held, int versions,
                              int predicted = 0) {
        for (const bool lockstep : {false, true}) {
          const auto s =
              make_schedule(name, {.stages = n, .microbatches = microbatches, .lockstep = lockstep});
          SCOPED_TRACE(::testing::Message() << name << " stage " << k << " of " << n);
          EXPECT_EQ(held, held_activations(s, k));
          EXPECT_EQ(versions, weight_versions(s, k));
          EXPECT_EQ(predicted, predicted_weights(s, k));
        }
      };
      const int m = 2 * n;
      expect("plain", m, 1, 1);
      expect("gpipe", m, m, 1);
      expect("1f1b", m, n - k, 1);
      expect("pipedream", 1, n - k, n - k);
      expect("pipedream", 3, 3 * (n - k), n - k);
      expect("pipedream-vs", 1, n - k, n);
      expect("pipedream-2bw", m, n - k, 2);
      expect("dualpipe", 1, 2 * (n - 1 - k) + 1, 1);
      expect("dualpipe-vs", 1, 2 * (n - 1 - k) + 1, 2 * n - 1 - k);
      expect("spectrain", 1, 2 * (n - 1 - k) + 1, 1, n == 1 ? 0 : k == 0 || k == n - 1 ? 1 : 2);
    }
  const auto s = make_schedule("interleaved", {.stages = 4, .microbatches = 4, .chunks = 2});
  EXPECT_EQ(4, held_activations(s, 0));
  EXPECT_EQ(1, held_activations(s, 3));
  EXPECT_EQ(1, weight_versions(s, 0));
}

TEST(ScheduleCosts, VersionsAreTheSlotsThatAreBuilt) {
  const Job job = small_residual_job();
  for (const std::string& name : schedule_names()) {
    const Strategy strategy{
        .microbatches = 4, .stages = 4, .schedule = name, .optimizer = SgdOptions{.momentum = 0.9}};
    const Program program = build(trace_job(job, job.batch_size / strategy.microbatches), strategy);
    const PipelineSchedule schedule = schedule_of(strategy);
    std::vector<int> slots(4, 0);  // by stage, of the weight that has most
    for (const StateBlock& state : program.states) {
      const MemoryBlock& block = program.block(state.block);
      if (!state.path.ends_with("weight") || state.path.starts_with(kOptimizerPath)) continue;
      int& most = slots[static_cast<std::size_t>(block.device)];
      most = std::max(most, block.slots);
    }
    for (int k = 1; k < 4; ++k)  // backward does not read the weights of the first layer
      EXPECT_EQ(weight_versions(schedule, k), slots[static_cast<std::size_t>(k)]) << name << " stage " << k;
    EXPECT_GE(weight_versions(schedule, 0), slots[0]) << name;
  }
}

}  // namespace
}  // namespace tandem::testing
