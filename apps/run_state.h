#pragma once
#include <cstdint>
#include <string>

#include <tandem/train/checkpoint.h>
#include <tandem/train/train_checkpoint.h>
#include <tandem/train/train_progress.h>

#include "train_options.h"

namespace tandem::apps {
using namespace engine;

/// What a checkpoint of train_cifar knows of its run beside model and optimizer: run.json.
struct RunState {
  TrainProgress progress;             ///< its batch is where the loader goes on
  std::int64_t epoch = 0;             ///< that this batch belongs to
  std::string train_data, test_data;  ///< digests
  TrainOptions options;               ///< not when read
  std::string arguments;              ///< the options, as JSON
};

/// All but the progress, which the library writes.
RunNotes notes_of(const RunState& run);

/// Throws Error where run.json is not as train_cifar writes it.
RunState read_run_state(const Checkpoint& checkpoint);

/// Throws Error listing the arguments, or data, with which this would not be the run that was saved. Returns
/// a note on those by which its losses change in their last bits, or, where a schedule has several batches in
/// flight, are those of other delays; empty where there are none. With --evaluate the network alone must
/// agree.
std::string compare(const RunState& saved, const RunState& now);

}  // namespace tandem::apps
