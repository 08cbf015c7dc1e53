#include <tandem/autograd/differentiate.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

// Adds the module's name to the message if the op has no vjp rule.
Tensors vjp_of(const Node& node, const VjpArgs& args) {
  try {
    return node.op->vjp(args);
  } catch (const NoRule& e) {
    throw NoRule(Scope::prefix(node.tag.path) + e.what());
  }
}

// Tells for each value whether it depends on one of `wrt`.
IdVector<ValueId, bool> dependents(const Graph& graph, std::span<const ValueId> wrt) {
  IdVector<ValueId, bool> depends(graph.values().size(), false);
  for (ValueId v : wrt) depends[v] = true;
  for (const Node& n : graph.nodes())
    for (ValueId in : n.inputs)
      if (depends[in] && !as<BoundaryOp>(n))
        for (ValueId out : n.outputs) depends[out] = true;
  return depends;
}

}  // namespace

std::vector<ValueId> add_gradients(Graph& graph, ValueId y, std::span<const ValueId> wrt, Phase phase) {
  if (!is_floating(graph.type(y).dtype))
    throw Error(fmt::format("{} cannot be differentiated: it is not floating", to_string(graph.type(y))));
  const IdVector<ValueId, bool> depends = dependents(graph, wrt);
  IdVector<ValueId, Tensor> grad(graph.values().size());
  const auto forward_nodes = graph.nodes().next_id();
  Trace trace(graph);
  const Tag of_y = graph.value(y).producer >= 0 ? graph.producer(y).tag : Tag{};
  trace.set_tag(of_y.in_phase(phase));
  grad[y] = trace.tensor(trace.value(Tensor::full(graph.type(y), 1)));

  for (NodeId id = forward_nodes; id-- > 0;) {
    // A copy, since the graph grows below. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const Node node = graph.node(id);
    std::vector<bool> needed;
    for (ValueId v : node.inputs) needed.push_back(depends[v]);
    Tensors out_grads;
    for (ValueId v : node.outputs) out_grads.push_back(grad[v]);
    Tensors before;
    for (ValueId v : node.inputs) before.push_back(grad[v]);
    Tensors sums = before;
    if (!contains(needed, true) || std::ranges::none_of(out_grads, &Tensor::defined)) continue;
    trace.set_tag(node.tag.in_phase(phase));
    const Tensors in_grads =
        vjp_of(node, {trace.tensors(node.inputs), trace.tensors(node.outputs), out_grads, needed, &sums});
    for (std::size_t i = 0; i < in_grads.size(); ++i) {
      if (!in_grads[i].defined() || !needed[i]) continue;
      if (in_grads[i].type() != graph.type(node.inputs[i]))
        throw Error(fmt::format("{}: the gradient of input {} of {} is {}, but the input is {}",
                                node.tag.path, i, node.op->name(), to_string(in_grads[i].type()),
                                to_string(graph.type(node.inputs[i]))));
      Tensor& sum = grad[node.inputs[i]];
      const bool added = before[i].defined() && !sums[i].defined();  // by the rule
      sum = sum.defined() && !added ? add(sum, in_grads[i]) : in_grads[i];
    }
  }
  std::vector<ValueId> result;
  for (ValueId v : wrt) result.push_back(grad[v].defined() ? trace.value(grad[v]) : ValueId());
  return result;
}

Differentiated differentiate(Graph graph, ValueId loss, std::span<const ValueId> wrt) {
  std::vector<ValueId> grads = add_gradients(graph, loss, wrt, Phase::backward);
  return {std::move(graph), std::move(grads)};
}

}  // namespace tandem::engine
