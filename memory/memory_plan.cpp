#include <tandem/memory/memory_plan.h>

#include <array>

#include <tandem/memory/memory_machine.h>

namespace tandem::engine {
namespace {

constexpr std::array<std::string_view, 7> kNames{"alloc", "free", "run", "recompute", "d2h", "h2d", "wait"};

}  // namespace

std::string_view name_of(MemoryStep::Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

MemoryCost replay(const MemoryProblem& problem, const MemoryPlan& plan) {
  MemoryMachine machine(problem, plan.resident_at_start, plan.host_at_start);
  for (const MemoryStep& step : plan.steps) machine.execute(step);
  return machine.finish();
}

}  // namespace tandem::engine
