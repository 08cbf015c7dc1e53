#include "lane_report.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/error.h>

namespace tandem::apps {

void require_simulable(const std::string& flag, std::int64_t batches, const Program& program) {
  constexpr std::int64_t kExecutions = 10'000'000;  // about a gigabyte
  const std::int64_t steps = std::max<std::int64_t>(1, std::ssize(program.steps));
  const std::int64_t most = std::max<std::int64_t>(1, kExecutions / steps - program.max_lag);
  if (batches < 1 || batches > most)
    throw Error(fmt::format("{} {}: must be at least 1, and at most {} to simulate {} a batch", flag, batches,
                            most, counted(steps, "step")));
}

void print_lanes(const SimBackend& sim) {
  const Program& program = sim.program();
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    const double busy = sim.timeline().busy(static_cast<LaneId>(l));
    fmt::print("  {:<28} busy {:5.1f} %\n", name_of(program.lanes[l], program.devices),
               sim.now() > 0 ? 100 * busy / sim.now() : 0);
  }
}

}  // namespace tandem::apps
