#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tandem/core/tensor.h>
#include <tandem/train/checkpoint.h>
#include <tandem/train/checkpoint_store.h>
#include <tandem/train/train_progress.h>

#include "train_options.h"

namespace tandem::apps {

/// What a checkpoint knows of its run beside model and optimiser: run.json.
struct RunState {
  TrainProgress progress;             ///< its batch is where the loader goes on
  std::int64_t epoch = 0;             ///< that this batch belongs to
  std::string train_data, test_data;  ///< digests
  TrainOptions options;               ///< not when read
  std::string arguments;              ///< the options, as JSON
};

/// The files of a checkpoint: model.safetensors (of several models model-0.safetensors, …), which PyTorch
/// reads, optimizer.safetensors and run.json. They share `state`, a Session's, which nothing else may change.
std::vector<CheckpointFile> checkpoint_files(std::map<std::string, Tensor> state, RunState run, int classes);

/// Throws Error where run.json is not as `checkpoint_files` writes it.
RunState read_run_state(const Checkpoint& checkpoint);
/// For Session::load. Throws Error where the network is another. `models_only`: without the optimiser's
/// state.
std::map<std::string, Tensor> read_state(const Checkpoint& checkpoint, const TrainOptions& options,
                                         int classes, bool models_only);

/// Throws Error listing the arguments, or data, with which this would not be the run that was saved. Returns
/// a note on those by which its losses change in their last bits, or, where a schedule has several batches in
/// flight, are those of other delays; empty where there are none. With --evaluate the network alone must
/// agree.
std::string compare(const RunState& saved, const RunState& now);

}  // namespace tandem::apps
