#pragma once
#include <cstdint>
#include <string>

#include <tandem/train/train_checkpoint.h>

#include "train_options.h"

namespace tandem::apps {
using namespace engine;

/// What a checkpoint of train_cifar holds about its run in addition to model and optimizer: run.json.
struct RunState {
  TrainProgress progress;             ///< its batch is the next one to load
  std::int64_t epoch = 0;             ///< the epoch of this batch
  std::string train_data, test_data;  ///< digests
  std::string schedule;               ///< digest of the pipeline schedule's stages and tasks
  std::vector<std::string> cuts;      ///< between the stages of a pipeline
  TrainOptions options;               ///< not filled when read from a checkpoint
  std::string arguments;              ///< the options, as JSON
};

/// Returns everything except the progress, which the library writes.
RunNotes notes_of(const RunState& run);

/// Throws Error if run.json is not as train_cifar writes it.
RunState read_run_state(const Checkpoint& checkpoint);

/// Throws Error if a run with these arguments, as in args.json, would differ from this one, which is to go on
/// in its directory although it has no checkpoint.
void require_same_arguments(const std::string& directory, const std::string& saved, const TrainOptions& now);

/// Throws Error listing the arguments or data that make this a different run from the saved one. Returns a
/// note on arguments that change the last bits of the losses or, if the schedule has several batches in
/// flight, their delays; empty if there are none. With --evaluate, only the network must agree.
std::string compare(const RunState& saved, const RunState& now);

}  // namespace tandem::apps
