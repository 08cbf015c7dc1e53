#include "trace_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "log.h"
#include "output_file.h"
#include "train_options.h"

namespace tandem::apps {
using namespace engine;

void write_trace(const std::string& file, Timeline timeline, std::int64_t steps) {
  if (file.empty()) return;
  bool has_all = true;
  if (steps > 0 && !timeline.spans.empty()) {
    const std::int64_t end = std::ranges::min(timeline.spans, {}, &Span::batch).batch + steps;
    has_all = std::erase_if(timeline.spans, [&](const Span& s) { return s.batch >= end; }) == 0;
  }
  write_json(file, "trace", to_perfetto(timeline));
  if (timeline.dropped > 0 && has_all)
    log_warning(fmt::format(
        "--trace has the first {} instructions of each lane; {} later ones are missing: trace a shorter run",
        kSpansPerLane, timeline.dropped));
}

}  // namespace tandem::apps
