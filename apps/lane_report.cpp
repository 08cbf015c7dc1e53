#include "lane_report.h"

#include <fmt/format.h>

namespace tandem::apps {

void print_lanes(const SimBackend& sim) {
  const Program& program = sim.program();
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    const double busy = sim.timeline().busy(static_cast<LaneId>(l));
    fmt::print("  {:<28} busy {:5.1f} %\n", name_of(program.lanes[l], program.devices),
               sim.now() > 0 ? 100 * busy / sim.now() : 0);
  }
}

}  // namespace tandem::apps
