#include "pipeline_options.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/pipeline/schedule_file.h>

namespace tandem::apps {
using namespace engine;

bool is_schedule_file(const std::string& schedule) { return schedule.ends_with(".json"); }

void check_schedule(const std::string& schedule) {
  if (is_schedule_file(schedule))
    read_schedule(schedule);
  else
    schedule_named(schedule);
}

void settle_pipeline(TrainOptions& o, int devices) {
  if (is_schedule_file(o.schedule)) {
    const PipelineSchedule schedule = read_schedule(o.schedule);
    if (o.stages == 0) o.stages = static_cast<int>(schedule.stages.size());
    if (o.microbatches == 1) o.microbatches = schedule.microbatches();
    o.devices = schedule.devices();
    o.last_device = schedule.stages.back().device;
    return;
  }
  if (o.stages == 0) o.stages = (devices > 0 ? devices : 2) * o.chunks;
  o.devices = std::max(1, o.stages / o.chunks);
  o.last_device = o.devices - 1;
}

PipelineSchedule schedule_of(const TrainOptions& o) {
  if (o.parallel != "pipeline") return make_schedule("plain", {.microbatches = o.microbatches});
  if (is_schedule_file(o.schedule)) return read_schedule(o.schedule);
  return make_schedule(o.schedule, {.stages = o.stages,
                                    .microbatches = o.microbatches,
                                    .chunks = o.chunks,
                                    .target = spectrain_target(o.spectrain_target),
                                    .lockstep = o.lockstep});
}

}  // namespace tandem::apps
