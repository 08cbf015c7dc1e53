#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// A forward graph in which each stage reads the trained states for itself, so that the gradient that a stage
/// has of a state is a value of its own.
struct SeparateUses {
  Graph graph;
  /// The reads of each trained state, by the order of the stages that use it.
  std::map<StateId, std::vector<ValueId>> reads;
  /// For each value of an added node, the value of the original nodes that it equals. The added nodes are
  /// there to be differentiated, and need not be computed.
  std::unordered_map<ValueId, ValueId> equal;
};

/// Separates the uses of the trained states that several stages use, such as tied weights. Then each stage
/// can sum its gradient over the micro-batches, and sends the sum once. Of one micro-batch nothing is
/// separated. An added node has the tag of the read or cast that it repeats, on the stage that uses it.
/// Throws Error if a trained state is read twice.
SeparateUses separate_uses(const Graph& forward, int microbatches);

}  // namespace tandem::engine
