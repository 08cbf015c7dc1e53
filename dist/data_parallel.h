#pragma once
#include <string>
#include <vector>

#include <tandem/autograd/training_graph.h>
#include <tandem/dist/all_reduce_costs.h>
#include <tandem/dist/fusion_group.h>

namespace tandem::engine {

/// The gradients of a training step as layers, by device, in the order in which backward makes them: names
/// and bytes, without times.
std::vector<std::vector<GradientLayer>> gradient_layers(const TrainingGraph& training);

/// Returns the parameters of planned groups of layers.
std::vector<FusionGroup> fusion_groups(const std::vector<GradientLayer>& layers,
                                       const std::vector<AllReduceGroup>& groups);

/// Returns the fusion groups of a policy that needs no times (se, wfbp, ddp), planned for each device
/// by itself. Throws Error if the policy needs times.
std::vector<FusionGroup> fusion_groups(const std::vector<std::vector<GradientLayer>>& devices,
                                       const std::string& policy);

/// Appends the all-reduces of a data-parallel training step: one for each group of gradients, whose tensors
/// lie side by side, and one for each other gradient, in the order in which backward makes them; then, after
/// the last of its device, one for each result. Gradients and results become sums over the replicas. With one
/// replica nothing changes. An all-reduce runs beside backward, because it has its own lane (Op::lane) and
/// waits only for its gradients; plan/list_order.h decides its position in the list order. Throws Error if a
/// group names a parameter that is unknown, repeated, or of another device or dtype.
TrainingGraph add_all_reduces(TrainingGraph training, int replicas, const std::vector<FusionGroup>& groups);

}  // namespace tandem::engine
