#pragma once
#include <optional>

#include <tandem/core/graph/graph.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/plan/strategy.h>

namespace tandem::apps {

/// Logs the stages between the strategy's cuts: their first modules, and what they take by the cost model
/// that chooses cuts, with the kernels of a profile or without. `forward` is of a micro-batch.
void say_stages(const engine::Graph& forward, const Strategy& strategy,
                const std::optional<engine::Profile>& profile);

}  // namespace tandem::apps
