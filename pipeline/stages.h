#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Cuts a forward graph into stages: a stage begins with the first node of the module that `cuts` names.
/// Nodes, and the state they use, get their stage. Inputs and constants go to every stage that uses them.
/// Throws Error listing the modules when a cut names none, comes out of order, or would part a state
/// from one of its users.
Graph cut_into_stages(Graph graph, const std::vector<std::string>& cuts);

/// Cuts that give `stages` stages of about equal floating-point work, at outermost modules (at inner ones
/// where there are too few). Throws Error when the graph has too few modules.
std::vector<std::string> balanced_cuts(const Graph& graph, int stages);

}  // namespace tandem::engine
