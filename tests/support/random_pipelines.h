#pragma once
#include <random>

#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::testing {

/// A random schedule that `check` accepts: stages that take turns on their devices or have each their own,
/// one or two compute lanes, lags that differ among the micro-batches of a batch, updates some units after
/// their gradients, in a random list order, with up to two barriers, and weights that are as young as
/// possible or older, with predictions or without.
engine::PipelineSchedule random_pipeline(std::mt19937_64& rng, int stages, int microbatches);

}  // namespace tandem::testing
