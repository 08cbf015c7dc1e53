#pragma once
#include <string>

#include <tandem/pipeline/schedules.h>

#include "train_options.h"

namespace tandem::apps {

/// Sets the stages, micro-batches and devices of a pipeline that the flags leave open, and takes "-async" off
/// the schedule's name: without --lockstep schedules run freely. `devices`: as many as there must be; 0: the
/// flags say. Throws Error if the flags contradict the schedule.
void settle_pipeline(TrainOptions& options, int devices);
/// Returns the schedule of the options: that of the file, or the one with the name for their stages. Without
/// a pipeline: plain. Throws Error if the schedule cannot take the stages or micro-batches.
engine::PipelineSchedule schedule_of(const TrainOptions& options);

}  // namespace tandem::apps
