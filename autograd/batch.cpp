#include <tandem/autograd/batch.h>

#include <algorithm>
#include <unordered_map>

#include <tandem/core/graph_ops.h>
#include <tandem/core/trace.h>
#include <tandem/ops/mapped.h>

namespace tandem {

Graph batch(const Graph& graph, std::int64_t models) {
  Graph result;
  for (StateSlot slot : graph.slots()) {
    slot.type.shape.insert(slot.type.shape.begin(), models);
    result.add_slot(std::move(slot));
  }
  std::unordered_map<ValueId, Replayed> values;
  Trace trace(result);
  for (const Node& node : graph.nodes()) {
    trace.set_tag(node.tag);
    const auto* input = dynamic_cast<const Input*>(node.op.get());
    const bool source = dynamic_cast<const Read*>(node.op.get()) || (input && input->per_model);
    replay_batched(node, models, source, values);
  }
  return result;
}

}  // namespace tandem
