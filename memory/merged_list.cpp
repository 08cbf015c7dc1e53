#include <tandem/memory/merged_list.h>

#include <algorithm>
#include <cstddef>

namespace tandem::engine {

std::vector<NodePlace> merged_list(const MemoryProblem& p, const MemoryDecisions& d) {
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
    for (const int before : d.forward_before.at(g)) {
      while (next < std::min(before, forward)) list.push_back({other, next++});
      list.push_back({back, n++});
    }
    while (next < forward) list.push_back({other, next++});
  }
  return list;
}

std::vector<Uses> uses_of(const MemoryProblem& p, const MemoryDecisions& d,
                          const std::vector<NodePlace>& list) {
  std::vector<Uses> all(p.values.size());
  const auto is_freed_within_a_pass = [&](int v) {
    const Treatment t = d.values[static_cast<std::size_t>(v)];
    return t == Treatment::recompute_each || t == Treatment::recompute_in_backward;
  };
  const auto add_forward = [&](int v, int i) {
    Uses& u = all[static_cast<std::size_t>(v)];
    u.last_forward = std::max(u.last_forward, i);
    if (is_freed_within_a_pass(v)) u.forward.push_back(i);
  };
  const auto add_backward = [&](int v, int i) {
    Uses& u = all[static_cast<std::size_t>(v)];
    if (u.first_backward == kNoPlace) u.first_backward = i;
    u.last_backward = i;
    if (is_freed_within_a_pass(v)) u.backward.push_back(i);
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
      add_forward(v, i);
    }
    for (const int v : n.inputs) {
      n.phase == Phase::forward ? add_forward(v, i) : add_backward(v, i);
      Uses& u = all[static_cast<std::size_t>(v)];
      if (n.phase == Phase::update &&
          p.values[static_cast<std::size_t>(v)].kind == MemoryValue::Kind::parameter)
        u.updated = std::min(u.updated, i);
    }
  }
  for (Uses& u : all)
    u.wraps = u.made != kNoPlace && u.first_backward != kNoPlace && u.first_backward < u.made;
  return all;
}

}  // namespace tandem::engine
