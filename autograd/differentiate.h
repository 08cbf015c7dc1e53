#pragma once
#include <span>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// A graph with its own backward pass appended.
struct Differentiated {
  Graph graph;
  std::vector<ValueId> grads;  ///< per value asked for; −1 where the loss does not depend on it
};

/// Reverse-mode differentiation of `loss` (a scalar, or one loss per model; seeded with ones) with respect
/// to `wrt`. A value read by several nodes gets its gradients added up from the last reader to the first.
/// Backward nodes inherit path, stage, micro-batch and rng_id of the node they differentiate.
Differentiated differentiate(Graph graph, ValueId loss, std::span<const ValueId> wrt);

}  // namespace tandem::engine
