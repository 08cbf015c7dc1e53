#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <tandem/plan/pipeline_simulation.h>

#include "typed_schedule.h"

namespace tandem::apps {

/// The options of `tandem sim pipeline`, which predicts schedules from a profile of stages, without weights.
struct PipelineSimulationOptions {
  std::string profile, schedules = "all", trace, write_schedule, link;
  std::int64_t batches = engine::kSteadyBatches, follow = -1;
  std::optional<double> corun;  ///< instead of the profile's
  ShapeOptions shape;
  bool json = false, timeline = false;
};

void add_pipeline_simulation_options(CLI::App& command, PipelineSimulationOptions& o);

/// Prints what each schedule takes. Throws Error if an option or the profile is not sound, or a schedule
/// cannot take the profile's stages.
void simulate_pipelines(const PipelineSimulationOptions& o);

}  // namespace tandem::apps
