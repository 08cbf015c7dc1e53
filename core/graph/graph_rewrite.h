#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>

namespace tandem::engine {

/// A graph with the states of another, and no nodes yet.
Graph with_states_of(const Graph& graph);

/// For passes that write a graph down again, node by node, in its order: some nodes as they were, others left
/// out or with something else in their place. (GraphEdit is for those that put nodes between others.)
///
///     GraphRewrite rewrite(graph);
///     for (const Node& n : graph.nodes())
///       is_needless(n) ? rewrite.replace(n.outputs[0], rewrite.now(n.inputs[0])) : rewrite.copy(n);
///     return rewrite.take();
class GraphRewrite {
 public:
  /// Begins with the states of `original`, which must outlive this.
  explicit GraphRewrite(const Graph& original);

  /// The value that stands for one of the original's. Throws Error where what makes that is not written yet.
  ValueId now(ValueId original);
  std::vector<ValueId> now(const std::vector<ValueId>& originals);
  /// Lets another value of the new graph stand for one of the original's from here on.
  void replace(ValueId original, ValueId value);

  /// Writes a node as it was.
  void copy(const Node& node) { copy(node, node.op, now(node.inputs)); }
  /// Writes a node with another op, or inputs (of the new graph); its outputs stand for the original's.
  void copy(const Node& node, OpPtr op, std::vector<ValueId> inputs);

  /// What is written so far; passes may add to it.
  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  Graph take() { return std::move(graph_); }

 private:
  const Graph& original_;
  Graph graph_;
  std::vector<ValueId> now_;  // per value of the original; −1: none yet
};

}  // namespace tandem::engine
