#include "pipeline_options.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#include "typed_schedule.h"

namespace tandem::apps {
using namespace engine;

void settle_pipeline(TrainOptions& o, int devices) {
  const TypedSchedule typed = typed_schedule(o.schedule);
  if (typed.asynchronous && o.lockstep)
    throw Error(fmt::format(
        "--lockstep contradicts --schedule {}, which runs freely: leave out one of the two", o.schedule));
  if (!typed.function) {
    const PipelineSchedule schedule = schedule_of(o);
    o.stages = static_cast<int>(schedule.stages.size());
    o.microbatches = schedule.microbatches();
    o.devices = schedule.devices();
    o.last_device = schedule.stages.back().device;
    return;
  }
  o.schedule = typed.function->name;
  if (o.stages == 0) o.stages = (devices > 0 ? devices : 2) * o.chunks;
  o.devices = std::max(1, o.stages / o.chunks);
  o.last_device = o.devices - 1;
}

PipelineSchedule schedule_of(const TrainOptions& o) {
  if (o.parallel != "pipeline") return make_schedule("plain", {.microbatches = o.microbatches});
  return made(typed_schedule(o.schedule), {.stages = o.stages,
                                           .microbatches = o.microbatches,
                                           .chunks = o.chunks,
                                           .target = spectrain_target(o.spectrain_target),
                                           .lockstep = o.lockstep});
}

}  // namespace tandem::apps
