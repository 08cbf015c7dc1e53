#include <tandem/plan/merge_arrays.h>

#include <numeric>

#include <tandem/core/graph/graph_ops.h>

namespace tandem::engine {
namespace {

// The op of an array's node in the graph of all.
OpPtr of_models(const Node& node, const Graph& array, const Graph& all, const ModelRange& models) {
  const auto state = [&](StateId s) { return all.find_state(array.state(s).path); };
  if (const auto* read = as<ReadOp>(node))
    return std::make_shared<ReadOp>(state(read->state), read->age, read->type, models);
  if (const auto* assign = as<AssignOp>(node))
    return std::make_shared<AssignOp>(state(assign->state), models);
  if (const auto* input = as<InputOp>(node); input && input->per_model)
    return std::make_shared<InputOp>(input->input, input->type, true, input->sum_of, models);
  if (const auto* result = as<ResultOp>(node)) return std::make_shared<ResultOp>(result->result, models);
  return node.op;
}

}  // namespace

Graph merge_arrays(const std::vector<Graph>& arrays, std::span<const int> sizes) {
  const int models = std::accumulate(sizes.begin(), sizes.end(), 0);
  Graph all;
  ModelRange range;
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    const Graph& array = arrays[a];
    range.count = sizes[a];
    for (State state : array.states()) {
      if (all.find_state(state.path) >= 0) continue;
      if (range.count > 1)
        state.type.shape[0] = models;
      else
        state.type.shape.insert(state.type.shape.begin(), models);
      all.add_state(std::move(state));
    }
    const std::int64_t channels = all.next_channel();
    IdVector<ValueId, ValueId> now(array.values().size(), -1);
    for (const Node& node : array.nodes()) {
      std::vector<ValueId> inputs;
      for (const ValueId v : node.inputs) inputs.push_back(now[v]);
      Tag tag = node.tag.of_array(static_cast<int>(a));
      if (tag.channel >= 0) tag.channel += channels;
      const NodeId made = all.add(of_models(node, array, all, range), std::move(inputs), std::move(tag));
      for (std::size_t o = 0; o < node.outputs.size(); ++o) now[node.outputs[o]] = all.node(made).outputs[o];
    }
    range.first += range.count;
  }
  return all;
}

}  // namespace tandem::engine
