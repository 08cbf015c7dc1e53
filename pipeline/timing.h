#pragma once
#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// Sets lag, lane and the age of weight reads on every node of a differentiated graph, by its task. If B
/// does not share F's weights, it gets its own reads, and values that are computed from weights alone
/// are computed again from these. Throws Error if B uses such a value on another stage than F makes it.
Graph apply_timing(const Graph& graph, const PipelineSchedule& schedule);

}  // namespace tandem::engine
