#include <tandem/autograd/differentiate.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

// Adds the module's name to the message if the op has no vjp rule.
Tensors vjp_of(const Node& node, const VjpArgs& args) {
  try {
    return node.op->vjp(args);
  } catch (const NoRule& e) {
    throw NoRule(fmt::format("{}: {}", node.tag.path.empty() ? "<top>" : node.tag.path, e.what()));
  }
}

// Tells for each value whether it depends on one of `wrt`.
IdVector<ValueId, bool> dependents(const Graph& graph, std::span<const ValueId> wrt) {
  IdVector<ValueId, bool> depends(graph.values().size(), false);
  for (ValueId v : wrt) depends[v] = true;
  for (const Node& n : graph.nodes())
    for (ValueId in : n.inputs)
      if (depends[in])
        for (ValueId out : n.outputs) depends[out] = true;
  return depends;
}

}  // namespace

Differentiated differentiate(Graph graph, ValueId loss, std::span<const ValueId> wrt) {
  if (!is_floating(graph.type(loss).dtype))
    throw Error(fmt::format("cannot differentiate a loss of type {}", to_string(graph.type(loss))));
  const IdVector<ValueId, bool> depends = dependents(graph, wrt);
  IdVector<ValueId, Tensor> grad(graph.values().size());
  std::vector<ValueId> result;
  {
    Trace trace(graph);
    const Tag of_loss = graph.value(loss).producer >= 0 ? graph.producer(loss).tag : Tag{};
    trace.set_tag(of_loss.in_phase(Phase::backward));
    grad[loss] = trace.tensor(trace.value(Tensor::full(graph.type(loss), 1)));

    for (NodeId id = graph.nodes().next_id() - 1; id-- > 0;) {  // without the seed
      // A copy, since the graph grows below. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
      const Node node = graph.node(id);
      std::vector<bool> needed;
      for (ValueId v : node.inputs) needed.push_back(depends[v]);
      Tensors out_grads;
      for (ValueId v : node.outputs) out_grads.push_back(grad[v]);
      if (!contains(needed, true) || std::ranges::none_of(out_grads, &Tensor::defined)) continue;
      trace.set_tag(node.tag.in_phase(Phase::backward));
      const Tensors in_grads =
          vjp_of(node, {trace.tensors(node.inputs), trace.tensors(node.outputs), out_grads, needed});
      for (std::size_t i = 0; i < in_grads.size(); ++i) {
        if (!in_grads[i].defined() || !needed[i]) continue;
        if (in_grads[i].type() != graph.type(node.inputs[i]))
          throw Error(fmt::format("{}: the gradient of input {} of {} is {}, but the input is {}",
                                  node.tag.path, i, node.op->name(), to_string(in_grads[i].type()),
                                  to_string(graph.type(node.inputs[i]))));
        Tensor& sum = grad[node.inputs[i]];
        sum = sum.defined() ? add(sum, in_grads[i]) : in_grads[i];
      }
    }
    for (ValueId v : wrt) result.push_back(grad[v].defined() ? trace.value(grad[v]) : ValueId());
  }
  return {std::move(graph), std::move(result)};
}

}  // namespace tandem::engine
