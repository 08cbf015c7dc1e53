#pragma once
#include <string>
#include <vector>

#include <tandem/autograd/training_graph.h>

namespace tandem::engine {

/// Appends the all-reduces of a data-parallel step: gradients group by group, each group's tensors placed
/// side by side, the rest tensor by tensor in the order in which backward makes them; and the results.
/// Gradients and results then are the sums over the replicas. Nothing happens with one replica. An all-reduce
/// runs beside backward because it has a lane of its own (Op::lane) and waits for its gradients only; where
/// it stands in the list order is plan/list_order.h's. Throws Error for a group that names a parameter
/// unknown, repeated, or of another stage or dtype.
TrainingGraph add_all_reduces(TrainingGraph training, int replicas,
                              const std::vector<std::vector<std::string>>& groups);

}  // namespace tandem::engine
