// The stages of a Program: a Program that was made from a profile of stages has the costs of this profile.
#include <gtest/gtest.h>

#include <tandem/pipeline/schedules.h>
#include <tandem/plan/measured_stages.h>
#include <tandem/plan/stage_program.h>

#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(MeasuredStages, AreThoseOfTheProfileOfWhichTheProgramWasMade) {
  auto rng = generator("measured stages");
  for (const std::string name : {"plain", "gpipe", "1f1b", "pipedream", "dualpipe", "spectrain"})
    for (const int microbatches : {1, 4}) {
      const int n = draw_int(rng, 2, 5);
      StageProfile profile;
      for (int k = 0; k < n; ++k)
        profile.stages.push_back({draw_real(rng, 0.5, 2), draw_real(rng, 0.5, 4),
                                  16.0 * draw_int(rng, 1, 1000), 4.0 * draw_int(rng, 1, 1000),
                                  16.0 * draw_int(rng, 1, 1000), draw_real(rng, 0.1, 1)});
      profile.stages.back().activation_bytes = 0;  // nothing crosses behind the last
      const PipelineSchedule schedule = make_schedule(name, {.stages = n, .microbatches = microbatches});
      const std::vector<StageCost> costs = stage_costs(stage_program(profile, schedule));
      ASSERT_EQ(profile.stages.size(), costs.size());
      for (std::size_t k = 0; k < costs.size(); ++k) {
        SCOPED_TRACE(name + " stage " + std::to_string(k));
        EXPECT_NEAR(profile.stages[k].forward_ms, costs[k].forward_ms, 1e-9);
        EXPECT_NEAR(profile.stages[k].backward_ms, costs[k].backward_ms, 1e-9);
        EXPECT_EQ(profile.stages[k].activation_bytes, costs[k].activation_bytes);
        EXPECT_EQ(profile.stages[k].weight_bytes, costs[k].weight_bytes);
        EXPECT_NEAR(*profile.stages[k].resident_bytes, *costs[k].resident_bytes, 256 * microbatches);
        EXPECT_NEAR(profile.stages[k].update_ms, costs[k].update_ms, 1e-9);
      }
    }
}

}  // namespace
}  // namespace tandem::testing
