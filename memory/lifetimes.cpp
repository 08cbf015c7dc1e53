#include <tandem/memory/lifetimes.h>

#include <limits>

namespace tandem::engine {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

Lifetimes::Lifetimes(const MemoryProblem& p)
    : p_(p), producer_(p.values.size()), rest_ms_(p.values.size()), seen_(p.values.size()) {
  for (std::size_t g = 0; g < p.graphs.size(); ++g) {
    std::vector<double> last(p.values.size(), kNever);
    double clock = 0;
    for (std::size_t n = 0; n < p.graphs[g].nodes.size(); ++n) {
      const MemoryNode& node = p.graphs[g].nodes[n];
      const double begin = clock;
      clock += node.run_ms;
      for (const int v : node.outputs) {
        producer_[static_cast<std::size_t>(v)] = {g, n, true};
        if (node.phase == Phase::forward) last[static_cast<std::size_t>(v)] = clock;
      }
      for (const int v : node.inputs) {
        double& of = last[static_cast<std::size_t>(v)];
        if (node.phase == Phase::forward) {
          of = clock;
        } else if (of < kNever) {
          rest_ms_[static_cast<std::size_t>(v)] = begin - of;
          of = kNever;
        }
      }
    }
  }
}
// In the order of recursion, for which chains can be too long.
double Lifetimes::recompute_ms(int value, const std::vector<Treatment>& treatments,
                               std::vector<int>* needed) const {
  ++call_;
  double ms = 0;
  for (std::vector<int> to_visit{value}; !to_visit.empty();) {
    const int v = to_visit.back();
    to_visit.pop_back();
    const Producer& p = producer_[static_cast<std::size_t>(v)];
    if (!p.exists || seen_[static_cast<std::size_t>(v)] == call_) continue;
    const Treatment treatment = treatments[static_cast<std::size_t>(v)];
    const bool there = rest_ms(v) > 0 && (treatment == Treatment::retain || treatment == Treatment::swap);
    if (needed && v != value) needed->push_back(v);
    if (there && v != value) {
      seen_[static_cast<std::size_t>(v)] = call_;
      continue;
    }
    const MemoryNode& node = p_.graphs[p.graph].nodes[p.node];
    for (const int out : node.outputs) seen_[static_cast<std::size_t>(out)] = call_;
    ms += node.run_ms;
    to_visit.insert(to_visit.end(), node.inputs.rbegin(), node.inputs.rend());
  }
  return ms;
}

}  // namespace tandem::engine
