#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/schedules.h>

namespace tandem::engine {

/// Sets lag, lane and the age of weight reads on every node of a differentiated graph, by stage and phase.
/// Where B does not share F's weights, it gets reads of its own, and whatever was computed from weights
/// alone is computed again from those. Throws Error when that is used on another stage, which comes first.
Graph apply_timing(const Graph& graph, const std::vector<StageTiming>& stages);

}  // namespace tandem::engine
