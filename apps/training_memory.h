#pragma once
#include <optional>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/plan/memory_budget.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/rank_talk.h>

#include "cifar_data.h"
#include "train_options.h"

namespace tandem::apps {

/// Divides models that train side by side into arrays, an array for each core, if nothing says how to divide them.
/// So no thread waits for another after each op. Large models train one by one on these cores: in one array, an
/// op on all models pushes out of the caches what the next op reads. Shapes decide, since the number of threads
/// can change bits; no measurement does. `forward` is of one model.
void put_side_by_side(TrainOptions& options, const engine::Graph& forward);

/// If the strategy plans memory, measures what its instructions take, unless a profile is known; divides
/// several models into arrays; and says what the plan does. Returns the plan of each device. `forward` is of
/// a micro-batch. The root of `ranks` measures, and decides for all.
std::vector<engine::DevicePlan> plan_memory(const TrainOptions& options, Strategy& strategy,
                                            const engine::Graph& forward, const CifarData& data,
                                            const std::optional<engine::Profile>& known,
                                            const RankTalk& ranks);

}  // namespace tandem::apps
