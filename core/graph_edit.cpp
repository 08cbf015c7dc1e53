#include <tandem/core/graph_edit.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/error.h>

namespace tandem {

NodeId GraphEdit::add(OpPtr op, std::vector<ValueId> inputs, Tag tag) {
  inputs_.push_back(inputs);
  return graph_.add(std::move(op), std::move(inputs), std::move(tag));
}

void GraphEdit::rewire(NodeId reader, ValueId from, ValueId to) {
  auto& in = inputs_[static_cast<std::size_t>(reader)];
  std::replace(in.begin(), in.end(), from, to);
}

Graph GraphEdit::finish() const {
  Graph result;
  for (const StateSlot& s : graph_.slots()) result.add_slot(s);
  std::vector<ValueId> value(graph_.values().size(), -1);
  std::vector<char> state(graph_.nodes().size(), 0);  // 1: being written, 2: written

  // Depth first, without recursion: a graph may be thousands of nodes deep.
  std::vector<std::pair<NodeId, std::size_t>> stack;
  const auto write = [&](NodeId root) {
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      auto& mark = state[static_cast<std::size_t>(n)];
      if (mark == 2) {
        stack.pop_back();
        continue;
      }
      mark = 1;
      const auto& in = inputs(n);
      bool descended = false;
      while (next < in.size() && !descended) {
        const NodeId producer = graph_.value(in[next++]).producer;
        if (producer < 0 || state[static_cast<std::size_t>(producer)] == 2) continue;
        if (state[static_cast<std::size_t>(producer)] == 1)
          throw Error(fmt::format("rewiring made a cycle through '{}'", graph_.node(producer).tag.path));
        stack.emplace_back(producer, 0);
        descended = true;
      }
      if (descended) continue;
      std::vector<ValueId> mapped;
      for (ValueId v : in) {
        if (value[static_cast<std::size_t>(v)] < 0)
          value[static_cast<std::size_t>(v)] = result.add_value(graph_.type(v));
        mapped.push_back(value[static_cast<std::size_t>(v)]);
      }
      const Node& node = graph_.node(n);
      const NodeId id = result.add(node.op, std::move(mapped), node.tag);
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        value[static_cast<std::size_t>(node.outputs[o])] = result.node(id).outputs[o];
      mark = 2;
      stack.pop_back();
    }
  };
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes().size()); ++n)
    if (state[static_cast<std::size_t>(n)] == 0) write(n);
  return result;
}

}  // namespace tandem
