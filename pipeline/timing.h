#pragma once
#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// Sets lag, lane and the age of weight reads on every node of a differentiated graph, by its task. If B
/// does not share F's weights, it gets its own reads, and values that are computed from weights alone
/// are computed again from these. If another stage uses such a value, its F and B share what comes.
Graph apply_timing(const Graph& graph, const PipelineSchedule& schedule);

}  // namespace tandem::engine
