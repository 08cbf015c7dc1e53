#include <tandem/autograd/training_graph.h>

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/autograd/differentiate.h>
#include <tandem/autograd/separate_uses.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

std::map<std::string, ValueId> results_of(const Graph& g) {
  std::map<std::string, ValueId> results;
  for (const Node& n : g.nodes())
    if (const auto* r = as<ResultOp>(n))
      if (!results.emplace(r->result, n.inputs[0]).second)
        throw Error(fmt::format("result '{}' is delivered twice", r->result));
  return results;
}

// No other function applies the gradient scale.
std::map<std::string, ValueId> scale_results(Graph& g, double factor) {
  auto results = results_of(g);
  if (factor == 1) return results;
  Trace trace(g);
  for (auto& [name, value] : results) {
    if (!is_floating(g.type(value).dtype)) continue;
    trace.set_tag(g.producer(value).tag.named("gradient_scale"));
    value = trace.value(scale(trace.tensor(value), factor));
  }
  return results;
}

// Repeats a graph for each micro-batch. A micro-batch reads the state that the one before assigned; only the
// last assign of each state stays. Takes out the nodes that only differentiation needs: detaches, and those
// whose values equal others.
class Unrolling {
 public:
  Unrolling(const Graph& once, int microbatches, const std::unordered_map<ValueId, ValueId>& equal = {})
      : once_(once), microbatches_(microbatches), equal_(equal), graph_(with_states_of(once)) {
    for (const Node& node : once_.nodes())
      if (const auto* assign = as<AssignOp>(node)) last_assign_[assign->state] = &node;
    for (int i = 0; i < microbatches; ++i) add_copy(i);
  }
  Graph& graph() { return graph_; }

  /// The left fold of a value over the micro-batches.
  ValueId sum(ValueId v, const Tag& tag) {
    ValueId total = values_[0].at(v);
    Trace trace(graph_);
    for (int i = 1; i < microbatches_; ++i) {
      trace.set_tag(tag.of_microbatch(i));
      total = trace.value(add(trace.tensor(total), trace.tensor(values_[static_cast<std::size_t>(i)].at(v))));
    }
    return total;
  }

 private:
  void add_copy(int i) {
    std::unordered_map<ValueId, ValueId> value;
    std::unordered_map<StateId, ValueId> assigned;
    for (const Node& node : once_.nodes()) {
      if (as<ResultOp>(node)) continue;
      if (const ValueId same = taken_out(node); same >= 0) {
        value[node.outputs[0]] = value.at(same);
        continue;
      }
      if (const auto* assign = as<AssignOp>(node)) {
        assigned[assign->state] = value.at(node.inputs[0]);
        if (i + 1 < microbatches_ || last_assign_.at(assign->state) != &node) continue;
      }
      const auto* read = as<ReadOp>(node);
      if (read && i > 0) {
        const auto before = assigned_.find(read->state);
        value[node.outputs[0]] = before != assigned_.end() ? before->second : values_[0].at(node.outputs[0]);
        continue;
      }
      std::vector<ValueId> inputs;
      for (ValueId v : node.inputs) inputs.push_back(value.at(v));
      if (i > 0 && is_shared(node, inputs)) {
        for (const ValueId o : node.outputs) value[o] = values_[0].at(o);
        continue;
      }
      const NodeId copy = graph_.add(node.op, std::move(inputs), node.tag.of_microbatch(i));
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        value[node.outputs[o]] = graph_.node(copy).outputs[o];
    }
    values_.push_back(std::move(value));
    assigned_ = std::move(assigned);
  }

  // The value of the graph that a node's value equals; −1 if the node stays.
  ValueId taken_out(const Node& node) const {
    if (as<DetachOp>(node)) return node.inputs[0];
    const auto found = node.outputs.empty() ? equal_.end() : equal_.find(node.outputs[0]);
    return found != equal_.end() ? found->second : ValueId(-1);
  }

  // True if the micro-batches share the node, because they share its inputs: for example a weight in bf16.
  bool is_shared(const Node& node, const std::vector<ValueId>& inputs) const {
    return !inputs.empty() && !node.op->random() && !as<AssignOp>(node) &&
           std::ranges::equal(inputs, node.inputs, {}, {}, [&](ValueId v) { return values_[0].at(v); });
  }

  const Graph& once_;
  int microbatches_;
  const std::unordered_map<ValueId, ValueId> equal_;
  Graph graph_;
  std::vector<std::unordered_map<ValueId, ValueId>> values_;  // per micro-batch: value of once_ -> of graph_
  std::unordered_map<StateId, ValueId> assigned_;             // by the micro-batch before
  std::unordered_map<StateId, const Node*> last_assign_;
};

// The optimizer gives a trained state its next value; what the loss assigned to it would be lost.
void require_only_read(const Graph& g) {
  for (const Node& n : g.nodes())
    if (const auto* assign = as<AssignOp>(n); assign && g.state(assign->state).trained)
      throw Error(fmt::format(
          "{}the loss assigns to '{}', which is trained: the optimizer gives it its next value. Assign "
          "between the steps, or freeze it: requires_grad(false)",
          Scope::prefix(n.tag.path), g.state(assign->state).path));
}

// What one stage adds to the gradient of a state.
struct StageGradient {
  ValueId value;
  Tag tag;
};

// Adds what the stages give, from the last to the first. The sum lies on the stage of the state.
ValueId sum_of(Graph& g, const std::vector<StageGradient>& stages, const State& s) {
  ValueId sum = stages.back().value;
  Trace trace(g);
  for (auto stage = stages.rbegin() + 1; stage != stages.rend(); ++stage) {
    trace.set_tag(stage->tag);
    sum = trace.value(add(trace.tensor(sum), trace.tensor(stage->value)));
  }
  if (g.producer(sum).tag.stage == s.stage) return sum;
  // Only other stages use the state.
  const Tag of_state = stages.back().tag.on_stage(s.stage, s.device);
  return g.node(g.add(std::make_shared<CopyOp>(), {sum}, of_state)).outputs[0];
}

}  // namespace

TrainingGraph training_graph(const Graph& forward, const TrainingGraphOptions& options) {
  SeparateUses uses = separate_uses(forward, options.microbatches);
  Graph& scaled = uses.graph;
  const auto results = scale_results(scaled, 1.0 / (options.replicas * options.microbatches));
  if (!results.contains(kLossResult)) throw Error("a training graph needs a result called 'loss'");
  if (const TensorType& loss = scaled.type(results.at(kLossResult)); loss.elements() != options.models)
    throw Error(fmt::format(
        "the result 'loss' is {}: it must be one scalar per model, the mean over its samples; take mean() "
        "of it",
        to_string(loss)));
  std::vector<ValueId> wrt;
  for (const auto& [state, reads] : uses.reads) wrt.insert(wrt.end(), reads.begin(), reads.end());
  if (wrt.empty())
    throw Error(
        "there is nothing to train: the model is not used, was neither initialized nor loaded before it was "
        "traced, or has only frozen parameters");
  require_only_read(scaled);
  const ValueId loss =
      options.scale_loss ? options.scale_loss(scaled, results.at(kLossResult)) : results.at(kLossResult);
  const Differentiated d = differentiate(scaled, loss, wrt);

  Unrolling unrolled(d.graph, options.microbatches, uses.equal);
  TrainingGraph result;
  auto grad = d.grads.begin();
  for (const auto& [state, reads] : uses.reads) {
    const State& s = d.graph.state(state);
    std::vector<StageGradient> stages;
    for (const ValueId read : reads)
      if (const ValueId of_stage = *grad++; of_stage >= 0) {
        const Tag& reader = d.graph.producer(read).tag;
        const Tag tag = tag_of(Phase::backward, s).on_stage(reader.stage, reader.device);
        stages.push_back({unrolled.sum(of_stage, tag), tag.of_microbatch(options.microbatches - 1)});
      }
    if (!stages.empty()) result.grads[state] = sum_of(unrolled.graph(), stages, s);
  }
  if (result.grads.empty())
    throw Error(fmt::format(
        "the loss depends on no trained parameter by a path that has a gradient: '{}' and the others would "
        "stay as they are; is the model's output detached, made under a NoGrad, or cast to integers?",
        scaled.state(uses.reads.begin()->first).path));
  for (const auto& [name, value] : results)
    result.results[name] = unrolled.sum(value, d.graph.producer(value).tag.named(name));
  result.graph = std::move(unrolled.graph());
  return result;
}

Graph remove_detaches(const Graph& forward) {
  GraphRewrite rewrite(forward);
  IdVector<ValueId, bool> trained(forward.values().size(), false);  // depends on a trained state
  for (const Node& node : forward.nodes()) {
    if (as<DetachOp>(node) && !trained[node.inputs[0]]) {
      rewrite.replace(node.outputs[0], rewrite.now(node.inputs[0]));
      continue;
    }
    rewrite.copy(node);
    const auto* read = as<ReadOp>(node);
    const bool depends = read ? forward.state(read->state).trained
                              : !as<BoundaryOp>(node) &&
                                    std::ranges::any_of(node.inputs, [&](ValueId v) { return trained[v]; });
    for (const ValueId v : node.outputs) trained[v] = depends;
  }
  return rewrite.take();
}

TrainingGraph evaluation_graph(const Graph& forward, int replicas) {
  TrainingGraph result;
  Graph scaled = forward;
  const auto results = scale_results(scaled, 1.0 / replicas);
  Unrolling once(scaled, 1);
  for (const auto& [name, value] : results) result.results[name] = once.sum(value, {});
  result.graph = std::move(once.graph());
  return result;
}

}  // namespace tandem::engine
