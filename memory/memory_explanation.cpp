#include <tandem/memory/memory_explanation.h>

#include <tandem/memory/lifetimes.h>
#include <tandem/memory/memory_machine.h>
#include <tandem/memory/memory_planner.h>

namespace tandem::engine {

std::vector<ValueVerdict> explain(const MemoryProblem& problem, const MemoryPlan& plan) {
  const Lifetimes lifetimes(problem);
  const MemoryDecisions kept = retain_all(problem);
  std::vector<ValueVerdict> verdicts;
  std::vector<int> place(problem.values.size(), -1);  // of a value's verdict
  for (const int v : candidates_of(problem)) {
    place[static_cast<std::size_t>(v)] = static_cast<int>(verdicts.size());
    MemoryDecisions again = kept;
    again.values[static_cast<std::size_t>(v)] = Treatment::recompute;
    const bool can_repeat = plan_of(problem, again, problem.static_bytes).has_value();
    verdicts.push_back({v, "", lifetimes.rest_ms(v), problem.can_copy() ? 2 * problem.copy_ms(v) : 0,
                        can_repeat ? lifetimes.recompute_ms(v, kept.values) : 0, false, false, 0});
  }
  const auto verdict = [&](int v) {
    const int i = v < 0 ? -1 : place[static_cast<std::size_t>(v)];
    return i < 0 ? nullptr : &verdicts[static_cast<std::size_t>(i)];
  };
  for (const MemoryGraph& graph : problem.graphs)
    for (const MemoryNode& n : graph.nodes)
      for (const int v : n.outputs)
        if (ValueVerdict* of = verdict(v)) of->made_by = n.name;

  const EvictedValues evicted = evicted_by(problem, plan);
  for (ValueVerdict& of : verdicts) {
    of.is_swapped = evicted.swapped.contains(of.value);
    of.is_recomputed = evicted.recomputed.contains(of.value);
  }
  MemoryMachine machine(problem);
  machine.begin(plan.resident_at_start, plan.host_at_start);
  for (const MemoryStep& s : plan.steps) {
    const double begin = machine.clock_ms();
    machine.execute(s);
    if (ValueVerdict* of = verdict(s.value)) of->stall_ms += machine.clock_ms() - begin;
  }
  return verdicts;
}

EvictedValues evicted_by(const MemoryProblem& problem, const MemoryPlan& plan) {
  const std::vector<int> all = candidates_of(problem);
  const std::set<int> candidates(all.begin(), all.end());
  EvictedValues evicted;
  for (const MemoryStep& s : plan.steps) {
    if ((s.kind == MemoryStep::Kind::d2h || s.kind == MemoryStep::Kind::h2d) && candidates.contains(s.value))
      evicted.swapped.insert(s.value);
    if (s.kind != MemoryStep::Kind::recompute) continue;
    const MemoryGraph& graph = problem.graphs[static_cast<std::size_t>(s.graph)];
    for (const int v : graph.nodes[static_cast<std::size_t>(s.node)].outputs)
      if (candidates.contains(v)) evicted.recomputed.insert(v);
  }
  return evicted;
}

}  // namespace tandem::engine
