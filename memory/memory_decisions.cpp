#include <tandem/memory/memory_decisions.h>

namespace tandem::engine {
namespace {

using Kind = MemoryValue::Kind;
constexpr int kNever = -1;

}  // namespace

bool is_recomputed_for_backward(Treatment t) {
  return t == Treatment::recompute || t == Treatment::recompute_and_keep || t == Treatment::recompute_each;
}

MemoryDecisions retain_all(const MemoryProblem& problem) {
  MemoryDecisions d{std::vector(problem.values.size(), Treatment::retain)};
  if (!problem.is_ring()) return d;
  for (const MemoryGraph& graph : problem.graphs)
    d.forward_before.emplace_back(graph.nodes.size() - static_cast<std::size_t>(graph.forward_nodes()));
  return d;
}

std::vector<int> candidates_of(const MemoryProblem& problem) {
  std::vector<int> found;
  for (const MemoryGraph& graph : problem.graphs) {
    std::vector<bool> read(problem.values.size());
    for (const MemoryNode& n : graph.nodes)
      if (n.phase != Phase::forward)
        for (const int v : n.inputs) read[static_cast<std::size_t>(v)] = true;
    for (const MemoryNode& n : graph.nodes)
      if (n.phase == Phase::forward)
        for (const int v : n.outputs)
          if (read[static_cast<std::size_t>(v)] &&
              problem.values[static_cast<std::size_t>(v)].kind == Kind::intermediate)
            found.push_back(v);
  }
  return found;
}

std::vector<int> read_apart(const MemoryProblem& problem) {
  std::vector<bool> apart(problem.values.size());
  for (const MemoryGraph& graph : problem.graphs) {
    std::vector<int> last(problem.values.size(), kNever);
    std::vector<bool> in_forward(problem.values.size());
    for (int n = 0; n < std::ssize(graph.nodes); ++n) {
      const MemoryNode& node = graph.nodes[static_cast<std::size_t>(n)];
      for (const auto* values : {&node.inputs, &node.outputs})
        for (const int v : *values) {
          const auto i = static_cast<std::size_t>(v);
          const bool forward = node.phase == Phase::forward;
          if (last[i] != kNever && in_forward[i] == forward && n > last[i] + 1) apart[i] = true;
          last[i] = n;
          in_forward[i] = forward;
        }
    }
  }
  std::vector<int> found;
  for (const MemoryGraph& graph : problem.graphs)
    for (const MemoryNode& node : graph.nodes)
      for (const int v : node.outputs)
        if (const auto i = static_cast<std::size_t>(v);
            node.phase == Phase::forward && apart[i] && problem.values[i].kind == Kind::intermediate)
          found.push_back(v);
  return found;
}

}  // namespace tandem::engine
