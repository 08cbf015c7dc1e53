#include <tandem/memory/memory_plan.h>

#include <algorithm>
#include <array>
#include <ranges>

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
  MemoryMachine machine(problem, plan.resident_at_start, plan.host_at_start);
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
  std::vector<bool> awaited(problem.values.size());  // on the host, from where a later step fetches them
  std::int64_t now = 0, peak = 0;
  const auto set = [&](int v, bool is_awaited) {
    if (awaited[static_cast<std::size_t>(v)] == is_awaited) return;
    awaited[static_cast<std::size_t>(v)] = is_awaited;
    const std::int64_t bytes = problem.values[static_cast<std::size_t>(v)].bytes;
    now += is_awaited ? bytes : -bytes;
    peak = std::max(peak, now);
  };
  for (const int v : plan.host_at_start) set(v, true);
  for (const MemoryStep& step : std::ranges::reverse_view(plan.steps)) {
    if (step.kind != MemoryStep::Kind::d2h && step.kind != MemoryStep::Kind::h2d) continue;
    set(step.value, true);
    if (step.kind == MemoryStep::Kind::d2h) set(step.value, false);
  }
  return peak;
}

MemoryCost replay(const MemoryProblem& problem, const MemoryPlan& plan) {
  MemoryMachine machine(problem, plan.resident_at_start, plan.host_at_start);
  for (const MemoryStep& step : plan.steps) machine.execute(step);
  return machine.finish();
}

}  // namespace tandem::engine
