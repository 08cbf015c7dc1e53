#include <tandem/memory/merged_list.h>

#include <algorithm>
#include <cstddef>

namespace tandem::engine {
namespace {

std::vector<NodePlace> merged_nodes(const MemoryProblem& p,
                                    const std::vector<std::vector<int>>& forward_before) {
  std::vector<NodePlace> list;
  if (!p.is_ring()) {
    for (int n = 0; n < std::ssize(p.graphs[0].nodes); ++n) list.push_back({0, n});
    return list;
  }
  for (int back = 0; back < std::ssize(p.graphs); ++back) {
    const int other = p.next_in_ring(back);
    const auto g = static_cast<std::size_t>(back);
    const int forward = p.graphs[static_cast<std::size_t>(other)].forward_nodes();
    int next = 0, n = p.graphs[g].forward_nodes();
    for (const int before : forward_before.at(g)) {
      while (next < std::min(before, forward)) list.push_back({other, next++});
      list.push_back({back, n++});
    }
    while (next < forward) list.push_back({other, next++});
  }
  return list;
}

std::vector<Uses> uses_in(const MemoryProblem& p, const std::vector<NodePlace>& list) {
  std::vector<Uses> all(p.values.size());
  const auto add_forward = [](Uses& u, int i) {
    u.last_forward = std::max(u.last_forward, i);
    u.forward.push_back(i);
  };
  const auto add_backward = [](Uses& u, int i) {
    if (u.first_backward == kNoPlace) u.first_backward = i;
    u.last_backward = i;
    u.backward.push_back(i);
  };
  for (int i = 0; i < std::ssize(list); ++i) {
    const NodePlace place = list[static_cast<std::size_t>(i)];
    const MemoryNode& n =
        p.graphs[static_cast<std::size_t>(place.graph)].nodes[static_cast<std::size_t>(place.node)];
    for (const int v : n.outputs) {
      Uses& u = all[static_cast<std::size_t>(v)];
      u.made = i;
      u.producer = place;
      u.in_forward = n.phase == Phase::forward;
      add_forward(u, i);
    }
    for (const int v : n.inputs) {
      Uses& u = all[static_cast<std::size_t>(v)];
      n.phase == Phase::forward ? add_forward(u, i) : add_backward(u, i);
      if (n.phase == Phase::update &&
          p.values[static_cast<std::size_t>(v)].kind == MemoryValue::Kind::parameter)
        u.updated = std::min(u.updated, i);
    }
  }
  for (Uses& u : all)
    u.wraps = u.made != kNoPlace && u.first_backward != kNoPlace && u.first_backward < u.made;
  return all;
}

}  // namespace

MergedList merged_list(const MemoryProblem& problem, const std::vector<std::vector<int>>& forward_before) {
  MergedList list{merged_nodes(problem, forward_before), {}};
  list.uses = uses_in(problem, list.nodes);
  return list;
}

}  // namespace tandem::engine
