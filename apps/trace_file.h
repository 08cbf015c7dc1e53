#pragma once
#include <string>

#include <tandem/core/runtime/timeline.h>

namespace tandem::apps {
using namespace engine;

/// Writes a timeline for ui.perfetto.dev, and says what of it is missing. An empty name means no file.
void write_trace(const std::string& file, const Timeline& timeline);

}  // namespace tandem::apps
