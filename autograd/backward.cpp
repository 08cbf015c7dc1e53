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
#include <tandem/autograd/gradient.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/scope.h>
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

// An output with its history, which the History itself leaves out.
Tensor output_of(const std::shared_ptr<History>& history, std::size_t i) {
  Tensor output = without_history(history->outputs[i]);
  output.impl()->history = history;
  output.impl()->output = i;
  return output;
}

// The tape as a graph, with the Tensor of each value.
struct Tape {
  const char* call;
  Graph graph;
  IdVector<ValueId, Tensor> held;  // per value
  std::vector<ValueId> leaves;
  std::unordered_map<const History*, std::vector<ValueId>> outputs;
  std::unordered_map<const Tensor::Impl*, ValueId> arguments;
  std::unordered_set<ValueId> overwritten;  // values assigned to after an op used them
  std::optional<std::int64_t> drawn;        // the batch of the ops that drew random numbers

  /// `call` is what a message names: backward or gradient.
  Tape(const Tensor& y, const char* call) : call(call) {
    for (const auto& history : tape_of(y)) {
      if (history->op->random() && drawn.value_or(history->batch) != history->batch)
        throw Error(
            fmt::format("{0}(): its Tensor depends on random numbers of batch {1} and of batch {2} ({3}); "
                        "call {0}() once per batch",
                        call, *drawn, history->batch, history->op->label()));
      if (history->op->random()) drawn = history->batch;
      record(history);
    }
    value_of(y);  // a leaf, if it has no history
  }

  bool has(const Tensor& t) const {
    return t.impl()->history ? outputs.contains(t.impl()->history.get()) : arguments.contains(t.impl().get());
  }

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
    for (std::size_t i = 0; i < history->outputs.size(); ++i) held.push_back(output_of(history, i));
  }
};

Tensor copy_of(const Tensor& t) {
  Tensor copy = Tensor::empty(t.type());
  std::memcpy(copy.data(), t.data(), static_cast<std::size_t>(t.type().bytes()));
  return copy;
}

// Returns the gradients of `y`; those of values that it does not depend on are undefined. They have a history
// unless there is a NoGrad.
Tensors gradients(Tape& tape, const Tensor& y, const std::vector<ValueId>& wrt) {
  const auto forward_nodes = tape.graph.nodes().next_id();
  const std::vector<ValueId> grads = add_gradients(tape.graph, tape.value_of(y), wrt, Phase::backward);
  const EagerBatch scope(tape.drawn.value_or(EagerBatch::current()));  // to draw the same numbers
  tape.held.resize(tape.graph.values().size());
  for (NodeId id = forward_nodes; id < tape.graph.nodes().next_id(); ++id) {
    const Node& node = tape.graph.node(id);
    Tensors inputs;
    for (ValueId v : node.inputs) {
      inputs.push_back(tape.held[v]);
      if (tape.overwritten.contains(v))
        throw Error(fmt::format(
            "{0}(): the derivative of {1}{2}{3} needs the old value of state '{4}', which was assigned "
            "another; call {0}() before the assignment",
            tape.call, node.op->label(), node.tag.path.empty() ? "" : " in module ", node.tag.path,
            inputs.back().impl()->state));
    }
    const Tensors outputs = apply_eager(node.op, inputs, node.tag);
    for (std::size_t i = 0; i < outputs.size(); ++i) tape.held[node.outputs[i]] = outputs[i];
  }
  Tensors result;
  for (const ValueId v : grads) result.push_back(v < 0 ? Tensor() : tape.held[v]);
  return result;
}

void require_one_element(const Tensor& y, const char* call) {
  if (y.elements() != 1)
    throw Error(fmt::format("{}{}() of {}: one element is needed; use sum() or mean()",
                            Scope::prefix(Scope::path()), call, to_string(y.type())));
}

[[noreturn]] void refuse_independent(const Tensor& y, const Tensors& x, std::size_t i, const char* why) {
  throw Error(fmt::format("{}gradient(): {} does not depend on Tensor {} of the second argument, {}{}",
                          Scope::prefix(Scope::path()), to_string(y.type()), i, to_string(x[i].type()), why));
}

}  // namespace

void Tensor::backward() const {
  if (Trace::active())
    throw Error("backward() inside a trace: the trace is differentiated as a whole; gradient() works there");
  require_one_element(*this, "backward");
  if (!needs_grad())
    throw Error("backward(): no input of this Tensor requires a gradient, or it was computed under a NoGrad");
  const NoGrad no_history;
  Tape tape(*this, "backward");
  const std::vector<ValueId> leaves = tape.leaves;
  const Tensors grads = gradients(tape, *this, leaves);
  std::set<const Impl*> given;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!grads[i]) continue;
    Tensor& leaf = tape.held[leaves[i]];
    if (leaf.grad().defined())
      leaf.set_grad(add(leaf.grad(), grads[i]));
    else  // leaves never share a gradient
      leaf.set_grad(given.insert(grads[i].impl().get()).second ? grads[i] : copy_of(grads[i]));
  }
}

Tensors gradient(const Tensor& y, const Tensors& x) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!x[i]) throw Error(fmt::format("gradient(): Tensor {} of the second argument was given no value", i));
  require_one_element(y, "gradient");
  std::vector<ValueId> wrt;
  if (Trace* trace = Trace::active()) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i].impl()->trace == 0 && x[i].impl()->state.empty())
        refuse_independent(y, x, i, ": it is a constant of the loss; pass it in the batch");
      wrt.push_back(trace->value(x[i]));
    }
    const auto grads = add_gradients(trace->graph(), trace->value(y), wrt, Phase::forward);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (grads[i] < 0)
        refuse_independent(y, x, i, NoGrad::active() ? ": it was computed under a NoGrad" : "");
    Tensors result = trace->tensors(grads);
    if (NoGrad::active()) std::ranges::transform(result, result.begin(), detach);
    return result;
  }
  Tape tape(y, "gradient");
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!tape.has(x[i]))
      refuse_independent(y, x, i,
                         !x[i].needs_grad() ? ", which requires no gradient: call requires_grad()"
                         : !y.needs_grad()  ? ": it was computed under a NoGrad"
                                            : "");
    wrt.push_back(tape.value_of(x[i]));
  }
  Tensors grads = gradients(tape, y, wrt);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!grads[i]) refuse_independent(y, x, i, "");
  return grads;
}

}  // namespace tandem
