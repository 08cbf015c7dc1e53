#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/partition.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Returns the problem of cutting a forward graph, traced for one micro-batch, into the strategy's stages.
/// Its layers are the parts of the graph that begin with the modules `cuts`; each has the name of its first
/// module, the first one is "inputs". Their times are those of a device of this speed, by default a core with
/// 50 GFLOP/s and 10 GB/s, by the operations and bytes of forward and of the gradients that the strategy
/// takes, and so the same on every machine. A value crosses all cuts between its maker and its users.
/// plan/measured_layers.h has the same problem with measured times.
PartitionProblem partition_problem(const Graph& forward, const std::vector<std::string>& cuts,
                                   const Strategy& strategy, const DeviceSpeed& speed = {});

/// Returns the first layers of the stages, but the first one, with which the problem's period is shortest
/// among those whose plan stays within the strategy's memory budget. If none is found, of those that were
/// tried the ones that need least. The problem's own budget does not matter.
std::vector<std::string> best_cuts(const Graph& forward, const Strategy& strategy, PartitionProblem problem);

/// Returns the best cuts by `partition_problem`: modules at any depth. Throws Error if the graph can be cut
/// at too few.
std::vector<std::string> balanced_cuts(const Graph& forward, const Strategy& strategy);

/// Returns the strategy's cuts; without any, the balanced ones. Throws Error if there are not as many as its
/// stages take.
std::vector<std::string> cuts_of(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
