#include "stage_report.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/units.h>
#include <tandem/pipeline/schedule_costs.h>
#include <tandem/plan/measured_layers.h>
#include <tandem/plan/network_layers.h>

#include "log.h"

namespace tandem::apps {
using namespace engine;

namespace {

// The layers that the cuts name; empty if one is no layer of the problem.
std::vector<int> layers_at(const std::vector<std::string>& cuts, const PartitionProblem& problem) {
  std::vector<int> at;
  for (const std::string& cut : cuts) {
    const auto found = std::ranges::find(problem.layers, cut, &PipelineLayer::name);
    if (found == problem.layers.end()) return {};
    at.push_back(static_cast<int>(found - problem.layers.begin()));
  }
  return at;
}

}  // namespace

void say_stages(const Graph& forward, const Strategy& strategy, const std::optional<Profile>& profile) {
  PartitionProblem problem;
  if (profile) problem = measured_partition_problem(forward, strategy, *profile);
  const bool is_measured = !layers_at(strategy.cuts, problem).empty();
  if (!is_measured) problem = partition_problem(forward, strategy.cuts, strategy);
  const Partition partition = partition_at(problem, layers_at(strategy.cuts, problem));
  for (std::size_t k = 0; k < partition.stages.size(); ++k) {
    const PartitionedStage& s = partition.stages[k];
    log_info(fmt::format(
        "stage {} from {}: F {:.2f} ms, B {:.2f} ms {}; {:.2f} MB cross to the next, "
        "{:.2f} MB return; about {:.1f} MB of memory",
        k, k == 0 ? "the inputs" : strategy.cuts[k - 1], s.forward * kMsPerSecond, s.backward * kMsPerSecond,
        is_measured ? "by the profile" : "at 50 GFLOP/s", s.forward_bytes / kBytesPerMb,
        s.backward_bytes / kBytesPerMb, s.memory_bytes / kBytesPerMb));
  }
  if (const std::string why = why_uneven(problem, partition); !why.empty()) log_info(why);
}

}  // namespace tandem::apps
