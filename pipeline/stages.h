#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// Cuts a forward graph into stages: each name in `cuts` is a module whose first node begins a stage. Sets
/// stage and device of the nodes and of the state that they use. Each stage gets the inputs and constants
/// that it uses. A state belongs to the first stage that uses it; later stages use a copy of its value that
/// this stage makes, so it reaches them once per batch, as activations do, and its gradient comes back.
/// Throws Error listing the modules if a cut names none or comes out of order, and Error if forward assigns a
/// state that several stages use.
Graph cut_into_stages(Graph graph, const std::vector<std::string>& cuts,
                      const std::vector<PipelineStage>& stages);

/// Returns the modules with which a stage can begin, in the order of their first nodes: of those that begin
/// at one node the outermost. A stage computes something; a state that forward assigns is used on one stage.
/// A module without state can be missing in evaluation, as dropout is, so it is among them only if there are
/// fewer than `stages` others. Throws Error listing the modules if there are too few cuts for so many stages.
std::vector<std::string> possible_cuts(const Graph& graph, int stages);

}  // namespace tandem::engine
