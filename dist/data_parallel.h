#pragma once
#include <string>
#include <vector>

#include <tandem/autograd/training_graph.h>
#include <tandem/dist/fusion_group.h>

namespace tandem::engine {

/// Appends the all-reduces of a data-parallel training step: one for each group of gradients, whose tensors
/// lie side by side, and one for each other gradient, in the order in which backward makes them; then one for
/// each result. Gradients and results become sums over the replicas. With one replica nothing changes. An
/// all-reduce runs beside backward, because it has its own lane (Op::lane) and waits only for its gradients;
/// plan/list_order.h decides its position in the list order. Throws Error if a group names a parameter that
/// is unknown, repeated, or of another stage or dtype.
TrainingGraph add_all_reduces(TrainingGraph training, int replicas, const std::vector<FusionGroup>& groups);

}  // namespace tandem::engine
