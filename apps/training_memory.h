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

/// Divides models that train side by side into arrays, an array for each core, if nothing says how to divide
/// them. So no thread waits for another after each op. Large models train one by one on these cores: in one
/// array, an op on all models pushes out of the caches what the next op reads. Shapes decide, since the
/// number of threads can change bits; no measurement does. Models with SGD and models with Adam get arrays of
/// their own, which it tells if `says`. `forward` is of one model.
void put_side_by_side(TrainOptions& options, const engine::Graph& forward, bool says);

/// How a run keeps within its memory.
struct TrainingMemory {
  std::vector<engine::DevicePlan> plans;  ///< of each device, or the different ones of turns
  std::vector<int> turns;                 ///< as TrainerOptions::turns
  bool are_of_all_turns = true;  ///< else some turns need no plan, so the run cannot be repeated by these
};
/// If the strategy plans memory, measures what its instructions take, unless a profile is known; divides
/// several models into arrays and turns, unless the options do; and says what the plan does. `forward` is of
/// a micro-batch. The root of `ranks` measures, and decides for all.
TrainingMemory plan_memory(const TrainOptions& options, Strategy& strategy, const engine::Graph& forward,
                           const CifarData& data, const std::optional<engine::Profile>& known,
                           const RankTalk& ranks);

/// Returns the options of a run of the first models alone.
TrainOptions with_first_models(TrainOptions options, int models);
/// Returns the strategy of a turn; of the only one if `turns` is empty.
Strategy strategy_of_turn(const Strategy& strategy, const std::vector<int>& turns, int turn);

}  // namespace tandem::apps
