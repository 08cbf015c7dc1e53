#pragma once
#include <string>

#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// Reads a schedule as JSON:
///
///     {"stages": [{"device": 0, "forward_age": 3, "backward_age": 1}, …],
///      "tasks": [{"kind": "F", "stage": 0, "microbatch": 0, "lag": 0, "lane": 0}, …]}
///
/// Kinds are F, B, U and barrier; docs/pipelines.md says what the keys mean. What is left out has the default
/// of PipelineStage and Task; without "backward_age" B uses F's weights. Throws Error naming the file if it
/// cannot be read, and what `check` throws.
PipelineSchedule read_schedule(const std::string& file);

/// Returns a schedule as JSON, a line for each stage and task. `read_schedule` reads it.
std::string to_json(const PipelineSchedule& schedule);

}  // namespace tandem::engine
