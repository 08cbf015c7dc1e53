#pragma once
#include <string>

#include <tandem/pipeline/schedules.h>

#include "train_options.h"

namespace tandem::apps {

/// Returns whether a --schedule is a file, FILE.json, rather than a name.
bool is_schedule_file(const std::string& schedule);
/// Throws Error if there is no such schedule, or no such file, or if the file's is impossible.
void check_schedule(const std::string& schedule);
/// Sets the stages, micro-batches and devices of a pipeline that the flags leave open. `devices`: as many as
/// there must be; 0: the flags say.
void settle_pipeline(TrainOptions& options, int devices);
/// Returns the schedule of the options: that of the file, or the one with the name for their stages. Without
/// a pipeline: plain. Throws Error if the schedule cannot take the stages or micro-batches.
engine::PipelineSchedule schedule_of(const TrainOptions& options);

}  // namespace tandem::apps
