// `backward` turns the recorded history into a Graph whose values hold buffers (the tape), differentiates it
// like a traced graph, and runs the backward nodes.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include <tandem/autograd/differentiate.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/pointwise.h>

namespace tandem {
using namespace engine;
namespace {

std::vector<std::shared_ptr<History>> tape_of(const Tensor& loss) {
  std::vector<std::shared_ptr<History>> tape, pending;
  std::unordered_set<const History*> seen;
  const auto visit = [&](const Tensor& t) {
    if (t.impl()->history && seen.insert(t.impl()->history.get()).second)
      pending.push_back(t.impl()->history);
  };
  visit(loss);
  while (!pending.empty()) {
    const auto history = pending.back();
    pending.pop_back();
    tape.push_back(history);
    for (const auto& input : history->inputs) visit(input);
  }
  std::sort(tape.begin(), tape.end(), [](const auto& a, const auto& b) { return a->order < b->order; });
  return tape;
}

// The tape as a graph, with the Tensor of each value.
struct Tape {
  Graph graph;
  IdVector<ValueId, Tensor> held;  // per value
  std::vector<ValueId> leaves;
  std::unordered_map<const History*, std::vector<ValueId>> outputs;
  std::unordered_map<const Tensor::Impl*, ValueId> arguments;
  std::unordered_set<ValueId> overwritten;  // values assigned to after an op used them

  ValueId value_of(const Tensor& t) {
    if (const auto& history = t.impl()->history) return outputs.at(history.get()).at(t.impl()->output);
    const auto [found, fresh] = arguments.emplace(t.impl().get(), graph.values().next_id());
    if (fresh) {
      graph.add_value(t.type());
      held.push_back(t);
      if (t.impl()->requires_grad) leaves.push_back(found->second);
    }
    return found->second;
  }

  void record(const std::shared_ptr<History>& history) {
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < history->inputs.size(); ++i) {
      inputs.push_back(value_of(history->inputs[i]));
      if (history->inputs[i].impl()->version != history->versions[i]) overwritten.insert(inputs.back());
    }
    const NodeId id = graph.add(history->op, std::move(inputs), history->tag);
    outputs[history.get()] = graph.node(id).outputs;
    held.insert(held.end(), history->outputs.begin(), history->outputs.end());
  }
};

Tensor copy_of(const Tensor& t) {
  Tensor copy = Tensor::empty(t.type());
  std::memcpy(copy.data(), t.data(), static_cast<std::size_t>(t.type().bytes()));
  return copy;
}

}  // namespace

void Tensor::backward() const {
  if (Trace::current()) throw Error("backward() inside a trace: the trace is differentiated as a whole");
  if (elements() != 1)
    throw Error(
        fmt::format("backward() of {}: one element is needed; use sum() or mean()", to_string(type())));
  if (!needs_grad()) throw Error("backward(): no input of this Tensor requires a gradient");
  Tape tape;
  std::optional<std::int64_t> drawn;  // the batch of the ops that drew random numbers
  for (const auto& history : tape_of(*this)) {
    if (history->op->random() && drawn.value_or(history->batch) != history->batch)
      throw Error(
          fmt::format("backward(): the loss uses random numbers of batch {} and of batch {} ({}); "
                      "call backward() once per batch",
                      *drawn, history->batch, history->op->label()));
    if (history->op->random()) drawn = history->batch;
    tape.record(history);
  }
  const ValueId loss = tape.value_of(*this);
  const auto forward_nodes = tape.graph.nodes().next_id();
  const Differentiated d = differentiate(tape.graph, loss, tape.leaves);

  const NoGrad no_history;
  const EagerBatch scope(drawn.value_or(EagerBatch::current()));  // so that backward draws the same numbers
  tape.held.resize(d.graph.values().size());
  for (NodeId id = forward_nodes; id < d.graph.nodes().next_id(); ++id) {
    const Node& node = d.graph.node(id);
    Tensors inputs;
    for (ValueId v : node.inputs) {
      inputs.push_back(tape.held[v]);
      if (tape.overwritten.contains(v))
        throw Error(fmt::format(
            "backward(): the derivative of {}{}{} needs the old value of state '{}', which was assigned "
            "another; call backward() before the assignment",
            node.op->label(), node.tag.path.empty() ? "" : " in module ", node.tag.path,
            inputs.back().impl()->state));
    }
    const Tensors outputs = evaluate(EagerKernels::current(), node.op, inputs, node.tag);
    for (std::size_t i = 0; i < outputs.size(); ++i) tape.held[node.outputs[i]] = outputs[i];
  }
  std::set<ValueId> given;
  for (std::size_t i = 0; i < tape.leaves.size(); ++i) {
    if (d.grads[i] < 0) continue;
    Tensor& leaf = tape.held[tape.leaves[i]];
    const Tensor& grad = tape.held[d.grads[i]];
    if (leaf.grad().defined())
      leaf.set_grad(add(leaf.grad(), grad));
    else
      leaf.set_grad(given.insert(d.grads[i]).second ? grad : copy_of(grad));  // leaves never share a gradient
  }
}

}  // namespace tandem
