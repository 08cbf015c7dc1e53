#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// Returns a graph with the states of `graph` and no nodes.
Graph with_states_of(const Graph& graph);

/// Writes a graph again for a pass, node by node in the original order. The pass copies a node, leaves it
/// out, or writes something else in its place. (GraphEdit is for passes that put nodes between others.)
///
///     GraphRewrite rewrite(graph);
///     for (const Node& n : graph.nodes())
///       is_needless(n) ? rewrite.replace(n.outputs[0], rewrite.now(n.inputs[0])) : rewrite.copy(n);
///     return rewrite.take();
class GraphRewrite {
 public:
  /// Begins with the states of `original`, which must outlive this.
  explicit GraphRewrite(const Graph& original);

  /// Returns the new value that stands for an original one. Throws Error if its producer is not written yet.
  ValueId now(ValueId original);
  std::vector<ValueId> now(const std::vector<ValueId>& originals);
  /// From here on `value`, of the new graph, stands for `original`.
  void replace(ValueId original, ValueId value);

  /// Writes a node unchanged.
  void copy(const Node& node) { copy(node, node.op, now(node.inputs)); }
  /// Writes a node with another op or inputs (of the new graph); its outputs stand for the original's.
  void copy(const Node& node, OpPtr op, std::vector<ValueId> inputs);

  /// Adds an op that has one output, and returns that output.
  ValueId add1(OpPtr op, std::vector<ValueId> inputs, Tag tag) {
    return graph_.node(graph_.add(std::move(op), std::move(inputs), std::move(tag))).outputs[0];
  }

  /// The graph written so far; passes can add to it.
  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  Graph take() { return std::move(graph_); }

 private:
  const Graph& original_;
  Graph graph_;
  IdVector<ValueId, ValueId> now_;  // per value of the original; −1: none yet
};

}  // namespace tandem::engine
