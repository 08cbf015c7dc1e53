#include <tandem/memory/recompute.h>

#include <map>
#include <set>

#include <tandem/core/graph_edit.h>
#include <tandem/memory/activations.h>

namespace tandem {

Graph insert_recomputes(const Graph& g, const std::vector<ValueId>& values) {
  GraphEdit edit(g);
  const auto readers = g.readers();
  const std::set<ValueId> again(values.begin(), values.end());
  std::map<ValueId, ValueId> copies;
  // Inputs precede their readers, so ascending ids meet sources first.
  for (ValueId v : again) {
    const Node node = g.node(g.value(v).producer);
    if (!copies.contains(v)) {
      Tag tag = node.tag;
      const Tag& user = g.node(backward_readers(g, readers, v).front()).tag;
      tag.phase = Phase::backward;
      tag.lag = user.lag;
      tag.lane = user.lane;
      std::vector<ValueId> inputs;
      for (ValueId in : node.inputs) inputs.push_back(copies.contains(in) ? copies.at(in) : in);
      const NodeId copy = edit.add(node.op, std::move(inputs), tag);
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        copies[node.outputs[o]] = edit.graph().node(copy).outputs[o];
    }
    for (NodeId r : backward_readers(g, readers, v)) edit.rewire(r, v, copies.at(v));
  }
  return edit.finish();
}

}  // namespace tandem
