#pragma once
#include <string>

#include <tandem/core/runtime/timeline.h>

namespace tandem::apps {
using namespace engine;

/// Writes a timeline for ui.perfetto.dev, and logs how many executions are missing. An empty name means no
/// file.
void write_trace(const std::string& file, const Timeline& timeline);

}  // namespace tandem::apps
