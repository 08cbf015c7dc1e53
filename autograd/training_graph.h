#pragma once
#include <map>
#include <string>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// The graph of a training step under construction, with the values that later passes still use.
struct TrainingGraph {
  Graph graph;
  std::map<StateId, ValueId> grads;        ///< of each trained state, summed over micro-batches
  ValueId update_if = -1;                  ///< bool, or one bool per model: update the states? −1: always
  std::map<std::string, ValueId> results;  ///< scaled, summed over micro-batches; no node returns them yet
};

}  // namespace tandem::engine
