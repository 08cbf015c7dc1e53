#pragma once
#include <map>
#include <tuple>
#include <vector>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/plan/optimizer.h>

namespace tandem::engine {

/// Predicts trained weights (Chen, Yang, and Cheng, 2018, Eq. 4): continues for some updates what the
/// optimizer did last, along the momentum of SGD, or along Adam's direction and the weight decay of AdamW. A
/// prediction is multiplied by the sum of the learning rates of exactly these updates. It reads what
/// `add_updates` made the optimizer keep.
class WeightPredictor {
 public:
  /// Adds nodes to the graph of `trace`. All arguments must outlive this object.
  WeightPredictor(Trace& trace, const Optimizer& optimizer, const std::vector<ParameterGroup>& groups,
                  int models)
      : trace_(trace), optimizer_(optimizer), groups_(groups), models_(models) {}

  /// Returns the weights that batch b − age assigned to `weight`, moved by the updates of these batches. The
  /// new nodes get `tag`. Throws Error if the optimizer keeps no momentum.
  Tensor predict(StateId weight, int age, const BatchRange& updates, const Tag& tag);

 private:
  Tensor rates(const Tag& tag, const BatchRange& updates, DType weight);

  Trace& trace_;
  const Optimizer& optimizer_;
  const std::vector<ParameterGroup>& groups_;
  const int models_;
  std::map<std::tuple<int, int, int, int, DType>, Tensor> rates_;  // one input for each lag of a stage
};

}  // namespace tandem::engine
