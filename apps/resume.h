#pragma once
#include <optional>
#include <string>
#include <vector>

#include <tandem/train/checkpoint.h>

#include "train_options.h"

namespace tandem::apps {

/// Where the checkpoints of a run directory are.
std::string checkpoints_of(const std::string& run_directory);

/// From what a run begins: nothing, a file of weights, or a checkpoint.
struct Start {
  std::string weights;
  std::string digest;  ///< checksum of what it begins from
  std::optional<Checkpoint> checkpoint;
  bool in_place = false;             ///< the run in --output goes on, or begins again where it saved nothing
  bool ended = false;                ///< that run came to its end, and has its summary
  std::vector<std::string> damaged;  ///< checkpoints passed over, and why
};

/// What --resume says. Throws Error where it names nothing to begin from, or an older checkpoint of the run
/// that --output holds.
Start find_start(const TrainOptions& options);

}  // namespace tandem::apps
