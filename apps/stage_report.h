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

/// Warns if devices take turns. A schedule without several batches in flight keeps only as many busy as it
/// has micro-batches in flight: at most those of a batch, and one if each returns before the next begins.
void warn_of_turns(const engine::PipelineSchedule& schedule);

}  // namespace tandem::apps
