#include <tandem/memory/memory_explanation.h>

#include <tandem/memory/lifetimes.h>
#include <tandem/memory/memory_machine.h>

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

  MemoryMachine machine(problem, plan.resident_at_start, plan.host_at_start);
  for (const MemoryStep& s : plan.steps) {
    const double begin = machine.clock_ms();
    machine.execute(s);
    if (ValueVerdict* of = verdict(s.value)) {
      if (s.kind == MemoryStep::Kind::d2h || s.kind == MemoryStep::Kind::h2d) of->is_swapped = true;
      of->stall_ms += machine.clock_ms() - begin;
    }
    if (s.kind != MemoryStep::Kind::recompute) continue;
    const MemoryNode& n =
        problem.graphs[static_cast<std::size_t>(s.graph)].nodes[static_cast<std::size_t>(s.node)];
    for (const int v : n.outputs)
      if (ValueVerdict* of = verdict(v)) of->is_recomputed = true;
  }
  return verdicts;
}

}  // namespace tandem::engine
