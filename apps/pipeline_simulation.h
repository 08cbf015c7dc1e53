#pragma once
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include <tandem/pipeline/schedules.h>

namespace tandem::apps {

/// The options of `tandem sim pipeline`, which predicts schedules from a profile of stages, without weights.
struct PipelineSimulationOptions {
  std::string profile, schedules = "all", spectrain_target = "paper", trace;
  std::int64_t batches = 200, follow = -1;
  int microbatches = 1, chunks = 1;
  bool json = false, timeline = false;
};

/// Adds --microbatches, --chunks and --spectrain-target, which `sim pipeline` and `plan pipeline` have.
void add_shape_options(CLI::App& command, int& microbatches, int& chunks, std::string& spectrain_target);

void add_pipeline_simulation_options(CLI::App& command, PipelineSimulationOptions& o);

/// Returns the schedule with this name. One with several batches in flight runs in lockstep, or freely if
/// "-async" follows the name. Throws Error if there is none, or if it cannot take the shape.
engine::PipelineSchedule schedule_called(std::string name, PipelineShape shape);

/// Prints what each schedule takes. Throws Error if an option or the profile is not sound, or a schedule
/// cannot take the profile's stages.
void simulate_pipelines(const PipelineSimulationOptions& o);

}  // namespace tandem::apps
