#pragma once
#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// Adds a node for every barrier of the schedule. A barrier belongs to no particular batch; its lag is 0, so
/// that it delays no stage in the drain.
Graph insert_barriers(Graph graph, const PipelineSchedule& schedule);

}  // namespace tandem::engine
