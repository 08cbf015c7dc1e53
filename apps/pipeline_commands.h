#pragma once
#include <string>

#include <CLI/CLI.hpp>

#include "typed_schedule.h"

namespace tandem::apps {

/// The options of `tandem plan pipeline`, which cuts a network into stages from a profile of its layers,
/// without weights.
struct PipelinePlanOptions {
  std::string profile, schedule = "1f1b", link, memory_budget, output;
  int stages = 0;
  ShapeOptions shape;
  double corun = 1;
  bool replicate = false, json = false;
};

void add_pipeline_plan_options(CLI::App& command, PipelinePlanOptions& o);

/// Prints the stages with the shortest period. Throws Error if an option or the profile is not sound, or no
/// stages fit the memory budget.
void plan_pipeline(const PipelinePlanOptions& o);

}  // namespace tandem::apps
