#pragma once
#include <tandem/core/runtime/timeline.h>
#include <tandem/memory/memory_plan.h>

namespace tandem::apps {
using namespace engine;

/// Returns a memory plan as a timeline of three lanes: computation, with waits and repeats apart, and copies
/// to and from the host. The batch of a span is the number of its graph.
Timeline timeline_of(const MemoryProblem& problem, const MemoryPlan& plan);

}  // namespace tandem::apps
