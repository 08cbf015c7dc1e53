// The share of the devices' time in which they compute: that of the simulator's runs, which know it.
#include "busy_share.h"

#include <gtest/gtest.h>

#include <tandem/core/runtime/sim_backend.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>
#include <tandem/plan/stage_program.h>

namespace tandem::apps {
namespace {

using namespace engine;

TEST(BusyShare, IsThatOfTheSimulator) {
  const StageProfile profile{.stages = {{1, 2, 0, 4}, {2, 3, 0, 4}, {1, 1.5, 0, 4}}, .corun = 0.8};
  constexpr std::int64_t kBatches = 40;
  for (const char* name : {"pipedream", "spectrain"}) {
    const PipelineSchedule schedule = make_schedule(name, {.stages = 3, .lockstep = true});
    const Program program = stage_program(profile, schedule);
    SimBackend sim(program);
    run(sim, kBatches);
    const double share = busy_share(program, sim.timeline(), program.max_lag, kBatches);
    EXPECT_LT(share, 0.95) << name << " has idle devices";
    EXPECT_NEAR(simulate_pipeline(profile, schedule, kBatches).shares.busy, share, 1e-9) << name;
    EXPECT_LT(busy_share(program, sim.timeline(), 0, program.max_lag), share - 0.05)
        << name << " fills while the first units run";
  }
}

}  // namespace
}  // namespace tandem::apps
