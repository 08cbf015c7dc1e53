#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/runtime/timeline.h>

namespace tandem::apps {
using namespace engine;

/// Writes the first `steps` batches of a timeline, or all if it is 0, for ui.perfetto.dev, and logs how many
/// executions are missing. An empty name means no file.
void write_trace(const std::string& file, Timeline timeline, std::int64_t steps);

}  // namespace tandem::apps
