#include <tandem/core/graph/graph.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/scope.h>

namespace tandem::engine {

NodeId Graph::add(OpPtr op, std::vector<ValueId> inputs, Tag tag) {
  const Types in = types(inputs);
  Types out;
  try {
    out = op->infer(in);
  } catch (const NoRule&) {
    throw;
  } catch (const Error& e) {
    throw Error(about(*op, tag, in, e.what()));
  }
  const auto id = nodes_.next_id();
  Node node{std::move(op), std::move(inputs), {}, std::move(tag)};
  for (auto& type : out) {
    node.outputs.push_back(values_.next_id());
    values_.push_back({std::move(type), id});
  }
  nodes_.push_back(std::move(node));
  return id;
}

StateId Graph::add_state(State state) {
  const auto [known, added] = state_ids_.try_emplace(state.path, states_.next_id());
  if (!added) throw Error(fmt::format("state '{}' exists already", state.path));
  states_.push_back(std::move(state));
  return known->second;
}

ValueId Graph::add_value(TensorType type) {
  values_.push_back({std::move(type), -1});
  return values_.next_id() - 1;
}

Types Graph::types(std::span<const ValueId> ids) const {
  Types result;
  result.reserve(ids.size());
  for (ValueId id : ids) result.push_back(type(id));
  return result;
}

StateId Graph::find_state(const std::string& path) const {
  const auto found = state_ids_.find(path);
  return found == state_ids_.end() ? StateId() : found->second;
}

std::int64_t Graph::next_channel() const {
  std::int64_t next = 0;
  for (const Node& n : nodes_) next = std::max(next, n.tag.channel + 1);
  return next;
}

Readers Graph::readers() const {
  Readers result(values_.size());
  for (const NodeId id : nodes_.ids())
    for (ValueId v : node(id).inputs)
      if (auto& r = result[v]; r.empty() || r.back() != id) r.push_back(id);
  return result;
}

std::optional<ValueId> view_of(const Graph& graph, const Node& node) {
  for (const Alias& a : node.op->may_alias(graph.types(node.inputs)))
    if (a.kind == Alias::view) return node.inputs[static_cast<std::size_t>(a.input)];
  return std::nullopt;
}

void verify(const Graph& graph) {
  IdVector<ValueId, bool> made;  // values without a producer are arguments
  for (const Value& v : graph.values()) made.push_back(v.producer < 0);
  for (const NodeId id : graph.nodes().ids()) {
    const Node& node = graph.node(id);
    const auto where = [&] {
      return fmt::format("node {} ({} at '{}')", id, node.op->name(), node.tag.path);
    };
    for (ValueId v : node.inputs)
      if (!made.contains(v) || !made[v])
        throw Error(fmt::format("{} reads value {} before it is made", where(), v));
    for (ValueId v : node.outputs) {
      if (!made.contains(v) || made[v] || graph.value(v).producer != id)
        throw Error(fmt::format("{} is not the one producer of value {}", where(), v));
      made[v] = true;
    }
    if (!std::ranges::equal(node.op->infer(graph.types(node.inputs)), node.outputs, {}, {},
                            [&](ValueId v) -> const TensorType& { return graph.type(v); }))
      throw Error(fmt::format("{}: output types are not what infer gives", where()));
    if (const auto* assign = as<AssignOp>(node)) {
      const StateId state = assign->state;
      if (!graph.states().contains(state))
        throw Error(fmt::format("{} assigns to unknown state {}", where(), state));
      if (!is_part(graph.type(node.inputs[0]), assign->models, graph.state(state).type))
        throw Error(fmt::format("{}: state '{}' is {}, the value {}", where(), graph.state(state).path,
                                to_string(graph.state(state).type), to_string(graph.type(node.inputs[0]))));
    }
    if (const auto* read = as<ReadOp>(node))
      if (!graph.states().contains(read->state) ||
          !is_part(read->type, read->models, graph.state(read->state).type))
        throw Error(
            fmt::format("{} reads state {}, which does not exist or has another type", where(), read->state));
  }
}

std::string about(const Op& op, const Tag& tag, TypesView inputs, std::string_view message) {
  return fmt::format("{}{}({}): {}", Scope::prefix(tag.path), op.label(), to_string(inputs), message);
}

Tag tag_of(Phase phase, const State& state) { return tag_of(phase, state.path, state.stage, state.device); }

std::string to_string(const Graph& graph) {
  std::string text;
  for (const NodeId id : graph.nodes().ids()) {
    const Node& n = graph.node(id);
    text += fmt::format("{} {} = {}{{{}}}({}) : {}  @{} {} stage {} mb {} lag {}\n", id,
                        fmt::join(n.outputs, ","), n.op->name(), n.op->attributes(), fmt::join(n.inputs, ","),
                        to_string(graph.types(n.outputs)), n.tag.path, name_of(n.tag.phase), n.tag.stage,
                        n.tag.microbatch, n.tag.lag);
  }
  return text;
}

}  // namespace tandem::engine
