#include <tandem/memory/memory_plan.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/memory/memory_machine.h>

namespace tandem::engine {
namespace {

constexpr std::array<std::string_view, 7> kNames{"alloc", "free", "run", "recompute", "d2h", "h2d", "wait"};

}  // namespace

std::string_view name_of(MemoryStep::Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

MemoryStep::Kind memory_step_kind(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) throw Error(fmt::format("'{}' is no instruction of a memory plan", name));
  return static_cast<MemoryStep::Kind>(found - kNames.begin());
}

std::vector<MemorySpan> spans_of(const MemoryProblem& problem, const MemoryPlan& plan) {
  MemoryMachine machine(problem);
  machine.begin(plan.resident_at_start, plan.host_at_start);
  std::vector<MemorySpan> spans;
  for (const MemoryStep& step : plan.steps) {
    const double before = machine.clock_ms();
    machine.execute(step);
    const bool is_copy = step.kind == MemoryStep::Kind::d2h || step.kind == MemoryStep::Kind::h2d;
    const double end = is_copy ? machine.copied_at(step.value) : machine.clock_ms();
    const double begin = is_copy ? end - problem.copy_ms(step.value) : before;
    const bool takes_time = step.kind != MemoryStep::Kind::alloc && step.kind != MemoryStep::Kind::free;
    if (takes_time && (is_copy || step.kind != MemoryStep::Kind::wait || end > begin))
      spans.push_back({step, begin, end, machine.live_bytes()});
  }
  machine.finish();
  return spans;
}

std::int64_t host_peak(const MemoryProblem& problem, const MemoryPlan& plan) {
  const auto at = [](int v) { return static_cast<std::size_t>(v); };
  std::vector<bool> is_fetched_later(problem.values.size()), is_last(plan.steps.size());
  for (const int v : plan.host_at_start) is_fetched_later[at(v)] = true;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {  // the last copies for which the host needs a value
    const auto [kind, v, graph, node] = plan.steps[i];
    if (kind != MemoryStep::Kind::d2h && kind != MemoryStep::Kind::h2d) continue;
    is_last[i] = !is_fetched_later[at(v)];
    is_fetched_later[at(v)] = kind == MemoryStep::Kind::h2d;
  }
  std::vector<bool> on_host(problem.values.size()), leaves(problem.values.size());
  std::int64_t now = 0, peak = 0;
  const auto set = [&](int v, bool there) {
    if (on_host[at(v)] == there) return;
    on_host[at(v)] = there;
    now += (there ? 1 : -1) * problem.values[at(v)].bytes;
    peak = std::max(peak, now);
  };
  for (const int v : plan.host_at_start) set(v, true);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto [kind, v, graph, node] = plan.steps[i];
    if (kind == MemoryStep::Kind::d2h) set(v, true);
    if (kind == MemoryStep::Kind::d2h || kind == MemoryStep::Kind::h2d) leaves[at(v)] = is_last[i];
    if (kind == MemoryStep::Kind::wait && leaves[at(v)]) set(v, false);
  }
  return peak;
}

PlanRank rank_of(const MemoryCost& cost, std::int64_t limit) {
  return {std::max<std::int64_t>(0, cost.peak_bytes - limit), cost.time_ms};
}

MemoryCost replay(const MemoryProblem& problem, const MemoryPlan& plan) {
  MemoryMachine machine(problem);
  machine.begin(plan.resident_at_start, plan.host_at_start);
  for (const MemoryStep& step : plan.steps) machine.execute(step);
  return machine.finish();
}

}  // namespace tandem::engine
