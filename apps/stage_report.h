#pragma once
#include <string>

#include <tandem/core/graph/graph.h>
#include <tandem/plan/strategy.h>

namespace tandem::apps {

/// Logs the stages of a pipeline: their first modules, and by the cost model that chooses cuts, what they
/// take. `forward` is of a micro-batch. Returns the cuts as a plan file.
std::string say_stages(const engine::Graph& forward, const Strategy& strategy);

}  // namespace tandem::apps
