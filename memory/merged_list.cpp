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

}  // namespace tandem::engine
