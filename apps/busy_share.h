#pragma once
#include <cstdint>

#include <tandem/core/runtime/timeline.h>
#include <tandem/core/schedule/program.h>

namespace tandem::apps {

/// Returns the share of the devices' time in which at least one of their compute lanes works: in a lockstep
/// run, from the start of the unit `first` to that of the unit `end`. NaN if nothing ran in between.
double busy_share(const engine::Program& program, const engine::Timeline& timeline, std::int64_t first,
                  std::int64_t end);

}  // namespace tandem::apps
