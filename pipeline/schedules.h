#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem {

/// Which weights SpecTrain predicts. Of N stages, stage k predicts s_f updates in F and s_b in B:
/// - paper: those that it has when the batch completes its round trip, s_f = 2N − 2 − k and s_b = k (Eqs. 5,
/// 6);
/// - effective: the same, but at the start of a run only the updates that happen: min(2N − 2 − k, b + k);
/// - serial: those with which one device would work on the batch, s_f = 2(N − 1 − k) and s_b = 0.
enum class SpecTrainTarget : std::uint8_t { paper, effective, serial };
/// Returns the target with this name. Throws Error listing the names if there is none.
SpecTrainTarget spectrain_target(std::string_view name);

/// What a schedule is made for.
struct PipelineShape {
  int stages = 1;        ///< in all
  int microbatches = 1;  ///< of a batch
  int chunks = 1;        ///< stages of each device: of N devices, stage c lies on device c mod N
  SpecTrainTarget target = SpecTrainTarget::paper;  ///< of spectrain
  bool lockstep = false;                            ///< all devices meet at a barrier after every tick
  int devices() const { return stages / chunks; }
};

/// A schedule by its name. To add one, write a function and give it a row in the table of schedules.cpp.
struct ScheduleFunction {
  std::string_view name;
  std::string_view help;  ///< one line: what runs when, with which weights
  engine::PipelineSchedule (*make)(const PipelineShape& shape);
  bool overlaps_batches = false;  ///< on two or more stages, several batches are in flight at once
  bool takes_chunks = false;      ///< a device can have several stages
  bool takes_target = false;      ///< it predicts weights, those that a SpecTrainTarget says
};

/// All schedules, in the order in which they are explained.
std::span<const ScheduleFunction> pipeline_schedules();
/// Returns the one with this name. Throws Error listing the names if there is none.
const ScheduleFunction& schedule_named(std::string_view name);
/// Returns their names, in order; with a column of the table, such as `&ScheduleFunction::takes_chunks`, the
/// names of those for which it is true.
std::vector<std::string> schedule_names(bool ScheduleFunction::*column = nullptr);
/// Makes the schedule with this name. Throws Error if there is none, or if it cannot take the shape.
engine::PipelineSchedule make_schedule(std::string_view name, const PipelineShape& shape);
/// Returns `one_by_one` of the schedule with this name, which needs only the devices of its stages: the shape
/// can have any micro-batches. Otherwise throws Error as `make_schedule` does.
engine::PipelineSchedule evaluation_schedule(std::string_view name, const PipelineShape& shape);

}  // namespace tandem
