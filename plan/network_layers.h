#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/partition.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Returns the problem of cutting a forward graph, traced for one micro-batch, into the strategy's stages.
/// Its layers are the parts of the graph that begin with the modules `cuts`; each has the name of its first
/// module. Their times are those of a core with 50 GFLOP/s and 10 GB/s, by the operations and bytes of
/// forward and of the gradients that the strategy takes, and so the same on every machine. A value crosses
/// all cuts between its maker and its users.
PartitionProblem partition_problem(const Graph& forward, const std::vector<std::string>& cuts,
                                   const Strategy& strategy);

/// Returns the cuts with which the strategy's schedule has the shortest period: modules at any depth. Throws
/// Error if the graph can be cut at too few.
std::vector<std::string> balanced_cuts(const Graph& forward, const Strategy& strategy);

/// Returns the strategy's cuts; without any, the balanced ones. Throws Error if there are not as many as its
/// stages take.
std::vector<std::string> cuts_of(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
