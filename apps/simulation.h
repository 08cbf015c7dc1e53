#pragma once
#include <optional>

#include <tandem/core/runtime/profile.h>

#include "cifar_data.h"
#include "recipe.h"
#include "run_directory.h"
#include "train_options.h"

namespace tandem::apps {
using namespace engine;

/// Measures the kernels of the Program on the data; of a pipeline also those of its layers, and of the cuts
/// that are best by them: a run with this profile has these cuts. `forward` is of a micro-batch.
Profile measured_profile(const TrainOptions& options, const Strategy& strategy, const Graph& forward,
                         const Program& program, const CifarData& data);

/// Measures, on the data, how many times as long the Program's computation takes beside its swaps.
double measured_copy_slowdown(const TrainOptions& options, const Program& program, const CifarData& data);

/// Does what --simulate says: predicts how long a training step takes, from kernels measured on the data or
/// from those of `known`, and prints and writes the prediction. `forward` is of a micro-batch.
void simulate(const TrainOptions& options, const Strategy& strategy, const CoreShares& cores,
              const Graph& forward, const CifarData& data, const std::optional<Profile>& known,
              RunDirectory& directory, const std::string& plan);

}  // namespace tandem::apps
