#pragma once
#include <optional>
#include <string>
#include <vector>

#include <tandem/train/checkpoint.h>

#include "train_options.h"

namespace tandem::apps {

/// Returns the directory in a run directory that holds its checkpoints.
std::string checkpoints_of(const std::string& run_directory);

/// What a run begins from: nothing, a file of weights, or a checkpoint.
struct Start {
  std::string weights;
  std::string digest;  ///< checksum of the weights or the checkpoint
  std::optional<Checkpoint> checkpoint;
  bool in_place = false;             ///< the run in --output continues, or begins again if it saved nothing
  bool ended = false;                ///< that run is complete, and has its summary
  std::vector<std::string> damaged;  ///< checkpoints passed over, and why
};

/// Returns the start that --resume names. Throws Error if it names nothing to begin from, or an older
/// checkpoint of the run that --output holds.
Start find_start(const TrainOptions& options);

}  // namespace tandem::apps
