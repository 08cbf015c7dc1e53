#pragma once
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/nn/module.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/checkpoint.h>
#include <tandem/train/checkpoint_store.h>
#include <tandem/train/train_progress.h>

namespace tandem {

/// The file of a checkpoint that holds the progress of its run.
inline constexpr const char* kRunFile = "run.json";

/// Entries that a program adds to that file, such as its own options: key and JSON text.
using RunNotes = std::vector<std::pair<std::string, std::string>>;

/// Returns a run's checkpoint as files for a CheckpointStore: model.safetensors (for several models
/// model-0.safetensors, …), which PyTorch reads; optimizer.safetensors with all other state; run.json with
/// progress and notes. `result` comes from Callbacks::checkpoint, and `model` is the Trainer's. The files
/// share the tensors of `result`, and do not use `model` afterwards. Throws Error if the state does not fit
/// `models` such models, or if a note is not JSON or its key occurs twice.
std::vector<CheckpointFile> checkpoint_files(nn::ModuleBase& model, const CheckpointResult& result,
                                             int models = 1, const RunNotes& notes = {});

/// These functions check everything that they read; Errors name the file and its fault. They compare no
/// checksums: `newest_checkpoint` does.

/// Returns the progress of the run. Also throws Error if it has another batch than the checkpoint, or another
/// number of models.
TrainProgress read_progress(const Checkpoint& checkpoint, int models = 1);
/// Returns only weights and running statistics, by path; those of several models are stacked. `model` gives
/// the paths and types that they must have, and does not change.
StateDict read_model_state(nn::ModuleBase& model, const Checkpoint& checkpoint, int models = 1);
/// Returns these and all other state: `result.state` as it was saved.
StateDict read_state(nn::ModuleBase& model, const Checkpoint& checkpoint, int models = 1);

}  // namespace tandem
