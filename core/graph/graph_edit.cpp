#include <tandem/core/graph/graph_edit.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_rewrite.h>

namespace tandem::engine {

NodeId GraphEdit::add(OpPtr op, std::vector<ValueId> inputs, Tag tag) {
  inputs_.push_back(inputs);
  return graph_.add(std::move(op), std::move(inputs), std::move(tag));
}

void GraphEdit::rewire(NodeId reader, ValueId from, ValueId to) {
  auto& in = inputs_[reader];
  std::replace(in.begin(), in.end(), from, to);
}

Graph GraphEdit::finish() const {
  GraphRewrite rewrite(graph_);
  IdVector<NodeId, char> state(graph_.nodes().size(), 0);  // 1: being written, 2: written

  // Depth first, without recursion: a graph can be thousands of nodes deep.
  std::vector<std::pair<NodeId, std::size_t>> stack;
  const auto write = [&](NodeId root) {
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      auto& mark = state[n];
      if (mark == 2) {
        stack.pop_back();
        continue;
      }
      mark = 1;
      const auto& in = inputs(n);
      bool descended = false;
      while (next < in.size() && !descended) {
        const NodeId producer = graph_.value(in[next++]).producer;
        if (producer < 0 || state[producer] == 2) continue;
        if (state[producer] == 1)
          throw Error(fmt::format("rewiring made a cycle through '{}'", graph_.node(producer).tag.path));
        stack.emplace_back(producer, 0);
        descended = true;
      }
      if (descended) continue;
      rewrite.copy(graph_.node(n), graph_.node(n).op, rewrite.now(in));
      mark = 2;
      stack.pop_back();
    }
  };
  for (const NodeId n : graph_.nodes().ids())
    if (state[n] == 0) write(n);
  return rewrite.take();
}

}  // namespace tandem::engine
