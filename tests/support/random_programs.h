#pragma once
#include <random>

#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// A schedule with everything a Program may have, a few steps long, not planned: one or two devices with one
/// to three lanes each, lags that do not fall along data, a list order that only respects data of equal lag,
/// states of random ages (assigned in place or not, or not at all), values in place of others, values side by
/// side in one block, host memory, workspaces, transfers, collectives, barriers, waits and slots given in
/// advance, costs.
Program random_schedule(std::mt19937_64& rng);

}  // namespace tandem::testing
