#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/schedule/program.h>
#include <tandem/pipeline/partition.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

// Layers with the times of their kernels on this machine. `forward` is of a micro-batch.

/// Returns the Program of training on one device, in which each layer between two possible cuts is a stage of
/// its own. So no kernel belongs to two layers, and Profile::measure measures each layer's.
Program layers_program(const Graph& forward, const Strategy& strategy);

/// Returns the problem of cutting a forward graph into the strategy's stages, as `partition_problem` does,
/// with the seconds that the layers' kernels take by a profile of `layers_program`. Throws Error naming a
/// kernel that the profile lacks.
PartitionProblem measured_partition_problem(const Graph& forward, const Strategy& strategy,
                                            const Profile& profile);

/// Returns the best cuts by `measured_partition_problem`. Throws Error as it does, or if the graph can be cut
/// at too few modules.
std::vector<std::string> measured_cuts(const Graph& forward, const Strategy& strategy,
                                       const Profile& profile);

}  // namespace tandem::engine
