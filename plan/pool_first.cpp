#include <tandem/plan/pool_first.h>

#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>

namespace tandem::engine {
namespace {

bool is_relu(const Op& op) {
  const auto* p = as<PointwiseOp>(op);
  return p && p->expression == PointwiseExpression{{PointwiseCode::input, 0}, {PointwiseCode::relu, 0}};
}

}  // namespace

Graph pool_first(const Graph& graph) {
  const auto readers = graph.readers();
  // The node that makes a pooling's input, if that is a relu that only the pooling reads.
  const auto relu_before = [&](const Node& pool) -> const Node* {
    if (!as<MaxPool2dOp>(pool)) return nullptr;
    const ValueId pooled = pool.inputs[0];
    const NodeId maker = graph.value(pooled).producer;
    if (maker < 0 || !is_relu(*graph.node(maker).op)) return nullptr;
    const bool alone = readers[pooled].size() == 1 &&
                       graph.type(pooled).dtype == graph.type(graph.node(maker).inputs[0]).dtype;
    return alone ? &graph.node(maker) : nullptr;
  };
  IdVector<NodeId, bool> moved(graph.nodes().size(), false);
  for (const Node& n : graph.nodes())
    if (const Node* relu = relu_before(n)) moved[relu - graph.nodes().data()] = true;

  GraphRewrite rewrite(graph);
  for (const NodeId n : graph.nodes().ids()) {
    const Node& node = graph.node(n);
    if (moved[n]) {
      rewrite.replace(node.outputs[0], rewrite.now(node.inputs[0]));
      continue;
    }
    rewrite.copy(node);
    if (const Node* relu = relu_before(node)) {
      const ValueId pooled = node.outputs[0];
      rewrite.replace(pooled, rewrite.add1(relu->op, {rewrite.now(pooled)}, relu->tag));
    }
  }
  return rewrite.take();
}

}  // namespace tandem::engine
