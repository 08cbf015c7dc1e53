#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Edits a graph for passes that put nodes between others. Nodes can be added and rewired in any order, and
/// `finish` writes the graph again with inputs before their readers. Value ids of the original stay valid
/// during the edit.
class GraphEdit {
 public:
  explicit GraphEdit(Graph graph) : graph_(std::move(graph)) {
    for (const Node& n : graph_.nodes()) inputs_.push_back(n.inputs);
  }

  /// The original and all added nodes. Their current inputs are in `inputs`, not in the nodes.
  const Graph& graph() const { return graph_; }
  NodeId add(OpPtr op, std::vector<ValueId> inputs, Tag tag);
  /// Adds an op that has one output, and returns that output.
  ValueId add1(OpPtr op, std::vector<ValueId> inputs, Tag tag) {
    return graph_.node(add(std::move(op), std::move(inputs), std::move(tag))).outputs[0];
  }
  const std::vector<ValueId>& inputs(NodeId n) const { return inputs_[n]; }
  void rewire(NodeId reader, ValueId from, ValueId to);
  void set_tag(NodeId n, Tag tag) { graph_.set_tag(n, std::move(tag)); }
  State& state(StateId s) { return graph_.state(s); }

  /// Returns the edited graph. Nodes keep their order if their inputs allow it; added nodes come as late as
  /// their readers allow. Call it once. Throws Error if rewiring made a cycle.
  Graph finish();

 private:
  Graph graph_;
  IdVector<NodeId, std::vector<ValueId>> inputs_;
  bool edited_ = false;
};

}  // namespace tandem::engine
