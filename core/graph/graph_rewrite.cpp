#include <tandem/core/graph/graph_rewrite.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

Graph with_states_of(const Graph& graph) {
  Graph result;
  for (const State& s : graph.states()) result.add_state(s);
  return result;
}

GraphRewrite::GraphRewrite(const Graph& original)
    : original_(original), graph_(with_states_of(original)), now_(original.values().size(), -1) {}

ValueId GraphRewrite::now(ValueId original) {
  ValueId& value = now_[original];
  if (value >= 0) return value;
  const NodeId producer = original_.value(original).producer;
  if (producer >= 0)
    throw Error(fmt::format("a pass reads value %{} of '{}' before it has written the node that makes it",
                            original, original_.node(producer).tag.path));
  return value = graph_.add_value(original_.type(original));  // an argument
}

std::vector<ValueId> GraphRewrite::now(const std::vector<ValueId>& originals) {
  std::vector<ValueId> values;
  for (ValueId v : originals) values.push_back(now(v));
  return values;
}

void GraphRewrite::replace(ValueId original, ValueId value) { now_[original] = value; }

void GraphRewrite::copy(const Node& node, OpPtr op, std::vector<ValueId> inputs) {
  const Node& added = graph_.node(graph_.add(std::move(op), std::move(inputs), node.tag));
  for (std::size_t o = 0; o < node.outputs.size(); ++o) replace(node.outputs[o], added.outputs[o]);
}

}  // namespace tandem::engine
