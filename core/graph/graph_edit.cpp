#include <tandem/core/graph/graph_edit.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_rewrite.h>

namespace tandem::engine {

NodeId GraphEdit::add(OpPtr op, std::vector<ValueId> inputs, Tag tag) {
  inputs_.push_back(inputs);
  edited_ = true;
  return graph_.add(std::move(op), std::move(inputs), std::move(tag));
}

void GraphEdit::rewire(NodeId reader, ValueId from, ValueId to) {
  std::ranges::replace(inputs_[reader], from, to);
  edited_ = true;
}

Graph GraphEdit::finish() {
  if (!edited_) return std::move(graph_);
  GraphRewrite rewrite(graph_);
  IdVector<NodeId, char> state(graph_.nodes().size(), 0);  // 1: being written, 2: written

  // Depth first, without recursion: a graph can be thousands of nodes deep.
  std::vector<std::pair<NodeId, std::size_t>> stack;
  const auto write = [&](NodeId root) {
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      state[n] = 1;
      if (const auto& in = inputs(n); next < in.size()) {
        const NodeId producer = graph_.value(in[next++]).producer;
        if (producer < 0 || state[producer] == 2) continue;
        if (state[producer] == 1)
          throw Error(fmt::format("rewiring made a cycle through '{}'", graph_.node(producer).tag.path));
        stack.emplace_back(producer, 0);
      } else {
        rewrite.copy(graph_.node(n), graph_.node(n).op, rewrite.now(in));
        state[n] = 2;
        stack.pop_back();
      }
    }
  };
  for (const NodeId n : graph_.nodes().ids())
    if (state[n] == 0) write(n);
  return rewrite.take();
}

}  // namespace tandem::engine
