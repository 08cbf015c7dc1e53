#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph.h>
#include <tandem/pipeline/schedules.h>

namespace tandem {

/// Cuts a forward graph into stages: a stage begins with the first node of the module that `cuts` names.
/// Nodes, and the state they use, get their stage. Inputs and constants go to every stage that uses them.
/// Throws Error listing the modules when a cut names none, comes out of order, or would part a state
/// from one of its users.
Graph cut_into_stages(Graph graph, const std::vector<std::string>& cuts);

/// Cuts that give `stages` stages of about equal floating-point work, at outermost modules (at inner ones
/// where there are too few). Throws Error when the graph has too few modules.
std::vector<std::string> balanced_cuts(const Graph& graph, int stages);

/// Sets lag, lane and the age of weight reads on every node of a differentiated graph, by stage and phase.
/// Where B does not share F's weights, it gets reads of its own, and whatever was computed from weights
/// alone is computed again from those.
Graph apply_timing(Graph graph, const std::vector<StageTiming>& stages);

/// A node for every barrier of the schedule. It belongs to no batch in particular: its lag is 0, so that in
/// the drain it holds nobody up.
Graph insert_barriers(Graph graph, const PipelineSchedule& schedule);

/// Puts a send and a receive between a value and every other stage that uses it. Both ends work at the
/// value's lag.
Graph insert_transfers(Graph graph);

}  // namespace tandem
