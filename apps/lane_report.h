#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/runtime/sim_backend.h>

namespace tandem::apps {
using namespace engine;

/// Throws Error naming `flag` unless a simulation can hold so many batches: at most 10 million executions of
/// instructions in all.
void require_simulable(const std::string& flag, std::int64_t batches, const Program& program);

/// Prints one row per lane: its name, and the share of the predicted time in which it is busy.
void print_lanes(const SimBackend& sim);

}  // namespace tandem::apps
