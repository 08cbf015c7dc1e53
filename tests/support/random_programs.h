#pragma once
#include <random>

#include <tandem/core/schedule/program.h>

namespace tandem::testing {
using namespace engine;

/// A random schedule, not planned, of a few instructions, with everything that a Program may have: one or two
/// devices with one to three lanes each, lags that do not fall along data, a list order that only respects
/// data of equal lag, states of random ages (assigned in place, or not, or never), values that replace
/// others, values next to each other in one block, host memory, workspaces, transfers, collectives, barriers,
/// given waits and slots, and costs.
Program random_schedule(std::mt19937_64& rng);

}  // namespace tandem::testing
