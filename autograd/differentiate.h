#pragma once
#include <span>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// A graph followed by its backward pass.
struct Differentiated {
  Graph graph;
  std::vector<ValueId> grads;  ///< one per value of `wrt`; −1 if the loss does not depend on that value
};

/// Appends the gradients of `loss` with respect to `wrt`, by reverse-mode differentiation. `loss` is a scalar
/// or one loss per model; its own gradient is ones. If several nodes read a value, its gradients are added
/// from the last reader to the first. A backward node inherits path, stage, micro-batch and rng_id from the
/// node that it differentiates. Throws Error if `loss` is not floating, NoRule if an op has no derivative.
Differentiated differentiate(Graph graph, ValueId loss, std::span<const ValueId> wrt);

/// Appends the gradients of `y`, as nodes of `phase`, to a graph that may be traced at this moment. Returns
/// them as `differentiate` does.
std::vector<ValueId> add_gradients(Graph& graph, ValueId y, std::span<const ValueId> wrt, Phase phase);

}  // namespace tandem::engine
