#include "lane_report.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::apps {
using namespace engine;

void require_simulable(const std::string& flag, std::int64_t batches, const Program& program) {
  constexpr std::int64_t kExecutions = 10'000'000;  // about a gigabyte
  const std::int64_t instructions = std::max<std::int64_t>(1, std::ssize(program.instructions));
  const std::int64_t most = std::max<std::int64_t>(1, kExecutions / instructions - program.max_lag);
  if (batches < 1 || batches > most)
    throw Error(fmt::format("{} {}: must be at least 1, and at most {} to simulate {} per batch", flag,
                            batches, most, counted(instructions, "instruction")));
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
