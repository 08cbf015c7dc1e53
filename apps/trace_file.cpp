#include "trace_file.h"

#include <fmt/format.h>

#include "log.h"
#include "output_file.h"
#include "train_options.h"

namespace tandem::apps {
using namespace engine;

void write_trace(const std::string& file, const Timeline& timeline) {
  if (file.empty()) return;
  write_file(file, to_perfetto(timeline));
  if (timeline.dropped > 0)
    log_warning(fmt::format(
        "--trace has the first {} instructions of each lane; {} later ones are missing: trace a shorter run",
        kSpansPerLane, timeline.dropped));
}

}  // namespace tandem::apps
