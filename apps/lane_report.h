#pragma once
#include <tandem/core/sim_backend.h>

namespace tandem::apps {

/// Prints a row a lane: its name, and how much of the predicted time it is busy.
void print_lanes(const SimBackend& sim);

}  // namespace tandem::apps
