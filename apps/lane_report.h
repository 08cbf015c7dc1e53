#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/runtime/sim_backend.h>

namespace tandem::apps {
using namespace engine;

/// Throws Error naming `flag` unless a simulation can hold so many batches: 10 million steps in all.
void require_simulable(const std::string& flag, std::int64_t batches, const Program& program);

/// Prints a row a lane: its name, and how much of the predicted time it is busy.
void print_lanes(const SimBackend& sim);

}  // namespace tandem::apps
