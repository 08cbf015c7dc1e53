#include <tandem/autograd/vmap.h>

#include <unordered_map>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/mapped.h>

namespace tandem::engine {

Graph vmap(const Graph& graph, std::int64_t models) {
  Graph result;
  for (State state : graph.states()) {
    state.type.shape.insert(state.type.shape.begin(), models);
    result.add_state(std::move(state));
  }
  std::unordered_map<ValueId, Replayed> values;
  Trace trace(result);
  for (const Node& node : graph.nodes()) {
    trace.set_tag(node.tag);
    const auto* input = as<InputOp>(node);
    const bool source = as<ReadOp>(node) || (input && input->per_model);
    replay_mapped(node, models, source, values);
  }
  return result;
}

}  // namespace tandem::engine
