#include "stage_report.h"

#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/plan/network_layers.h>

#include "log.h"

namespace tandem::apps {
using namespace engine;

std::string say_stages(const Graph& forward, const Strategy& strategy) {
  constexpr double kMsPerSecond = 1e3, kBytesPerMb = 1e6;
  const auto cuts = cuts_of(forward, strategy);
  std::vector<int> each(cuts.size());  // every layer is a stage
  std::iota(each.begin(), each.end(), 1);
  const Partition partition = partition_at(partition_problem(forward, cuts, strategy), each);
  for (std::size_t k = 0; k < partition.stages.size(); ++k) {
    const PartitionedStage& s = partition.stages[k];
    log_info(fmt::format(
        "stage {} from {}: F {:.2f} ms, B {:.2f} ms at 50 GFLOP/s; {:.2f} MB cross to the next, "
        "{:.2f} MB return; about {:.1f} MB of memory",
        k, k == 0 ? "the inputs" : cuts[k - 1], s.forward * kMsPerSecond, s.backward * kMsPerSecond,
        s.forward_bytes / kBytesPerMb, s.backward_bytes / kBytesPerMb, s.memory_bytes / kBytesPerMb));
  }
  return nlohmann::json{{"cuts", cuts}}.dump() + "\n";
}

}  // namespace tandem::apps
