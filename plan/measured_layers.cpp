#include <tandem/plan/measured_layers.h>

#include <tandem/core/base/units.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/build.h>
#include <tandem/plan/measured_stages.h>
#include <tandem/plan/network_layers.h>

namespace tandem::engine {
namespace {

Program layers_program(const Graph& forward, const Strategy& strategy, const std::vector<std::string>& cuts) {
  PipelineSchedule schedule = make_schedule(
      "plain", {.stages = static_cast<int>(cuts.size()) + 1, .microbatches = strategy.microbatches});
  for (PipelineStage& stage : schedule.stages) stage.device = 0;
  Strategy one = with_schedule(on_one_device(strategy), std::move(schedule));
  one.cuts = cuts;
  return build(forward, one);
}

}  // namespace

Program layers_program(const Graph& forward, const Strategy& strategy) {
  return layers_program(forward, strategy, possible_cuts(forward, strategy.stages));
}

PartitionProblem measured_partition_problem(const Graph& forward, const Strategy& strategy,
                                            const Profile& profile) {
  const std::vector<std::string> cuts = possible_cuts(forward, strategy.stages);
  PartitionProblem problem = partition_problem(forward, cuts, strategy);
  const Program program = with_costs(layers_program(forward, strategy, cuts), profile);
  const auto costs = stage_costs(program);
  for (std::size_t i = 0; i < problem.layers.size(); ++i) {
    problem.layers[i].forward = costs[i].forward_ms / kMsPerSecond;
    problem.layers[i].resident_bytes = problem.layers[i].shared_bytes = 0;
    problem.layers[i].backward = (costs[i].backward_ms + costs[i].update_ms) / kMsPerSecond;
  }
  for (const KeptBlock& kept : kept_blocks(program)) keep(problem.layers, kept.stages, kept.bytes);
  return problem;
}

std::vector<std::string> measured_cuts(const Graph& forward, const Strategy& strategy,
                                       const Profile& profile) {
  return strategy.stages <= 1
             ? std::vector<std::string>()
             : best_cuts(forward, strategy, measured_partition_problem(forward, strategy, profile));
}

}  // namespace tandem::engine
