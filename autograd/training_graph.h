#pragma once
#include <map>
#include <string>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph of a step under construction, with the values in it that something is still to be done with.
struct TrainingGraph {
  Graph graph;
  std::map<StateId, ValueId> grads;        ///< of trained slots, summed over micro-batches
  ValueId update_if = -1;                  ///< bool, or one a model: whether state changes; −1: it does
  std::map<std::string, ValueId> results;  ///< scaled and summed over micro-batches; not yet delivered
};

}  // namespace tandem::engine
