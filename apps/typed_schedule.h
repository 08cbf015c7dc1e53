#pragma once
#include <string>
#include <vector>

#include <tandem/pipeline/schedules.h>

namespace CLI {
class App;
}

namespace tandem::apps {

/// A pipeline schedule as users type it: a name ("dualpipe"); a name with "-async" after it, which says that
/// the schedule runs freely, not in lockstep; or a file ("mine.json").
struct TypedSchedule {
  std::string text;
  const ScheduleFunction* function = nullptr;  ///< with the name; null: the file has the schedule
  bool asynchronous = false;
  engine::PipelineSchedule file{};
};

/// Returns whether the text is that of a file rather than a name.
bool is_schedule_file(const std::string& text);

/// Throws Error if there is no such schedule or file, if the file's is impossible, or if "-async" follows the
/// name of a schedule without several batches in flight.
TypedSchedule typed_schedule(const std::string& text);

/// Returns the schedule for a shape. 0 stages or micro-batches are those of a file; without one, 0
/// micro-batches are 1. Throws Error if the shape has others than the file, or if the schedule cannot take
/// the shape.
engine::PipelineSchedule made(const TypedSchedule& typed, PipelineShape shape);

/// Returns why a flag that some schedules take (&ScheduleFunction::takes_chunks) has no effect with these,
/// which were typed as `text`: "with --schedule 1f1b; it is for interleaved". Empty if one of them takes it.
std::string why_not_taken(bool ScheduleFunction::*takes, const std::vector<TypedSchedule>& schedules,
                          const std::string& text);

/// What `tandem sim pipeline` and `tandem plan pipeline` make a schedule for, besides its stages.
struct ShapeOptions {
  int microbatches = 0;  ///< 0: a file's; for a name, 1
  int chunks = 1;
  std::string spectrain_target = "paper";
};

/// Adds --microbatches, --chunks and --spectrain-target.
void add_shape_options(CLI::App& command, ShapeOptions& o);
/// Throws Error if an option is for none of the schedules, which were typed as `text`.
void check_shape_options(const ShapeOptions& o, const std::vector<TypedSchedule>& schedules,
                         const std::string& text);

/// Returns the schedule for these stages, as `made` does, with the options that it takes. By its name, one
/// with several batches in flight runs in lockstep, unless "-async" follows.
engine::PipelineSchedule made(const TypedSchedule& typed, int stages, const ShapeOptions& o);

/// What --help says about the texts of schedules.
std::string typed_schedule_help();

/// Returns why devices take turns, and what helps; empty if they do not. A schedule without several batches
/// in flight keeps only as many busy as it has micro-batches in flight: at most those of a batch, and one if
/// each returns before the next begins.
std::string why_devices_take_turns(const engine::PipelineSchedule& schedule);

}  // namespace tandem::apps
