#pragma once
#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/schedules.h>

namespace tandem::engine {

/// A node for every barrier of the schedule. It belongs to no batch in particular: its lag is 0, so that in
/// the drain it holds nobody up.
Graph insert_barriers(Graph graph, const PipelineSchedule& schedule);

}  // namespace tandem::engine
