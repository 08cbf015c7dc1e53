#pragma once
#include <map>
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

/// The file of a checkpoint that says how far its run is.
inline constexpr const char* kRunFile = "run.json";

/// What a program adds to that file, such as its own options: key and JSON text.
using RunNotes = std::vector<std::pair<std::string, std::string>>;

/// A run's checkpoint as files for a CheckpointStore: model.safetensors (of several models
/// model-0.safetensors, …), which PyTorch reads; optimizer.safetensors, all other state; run.json, progress
/// and notes. `result` is what Callbacks::checkpoint gives, `model` the Trainer's, of which the files need
/// nothing afterwards; they share the tensors of `result`. Throws Error where its state is not that of so
/// many such models, or notes are no JSON or come twice.
std::vector<CheckpointFile> checkpoint_files(nn::Module& model, const CheckpointResult& result,
                                             int models = 1, const RunNotes& notes = {});

/// What is read back is checked in full: Errors name the file, and what is wrong with it. Who wants every
/// byte compared with its checksum has the checkpoint from `newest_checkpoint`.

/// How far the run is. Throws Error also where it is of another batch than the checkpoint, or of another
/// number of models.
TrainProgress read_progress(const Checkpoint& checkpoint, int models = 1);
/// Weights and running statistics alone, by path; of several models stacked. `model` says what they must be,
/// to the type, and is left as it is.
StateDict read_model_state(nn::Module& model, const Checkpoint& checkpoint, int models = 1);
/// The same with all other state: what `result.state` was.
StateDict read_state(nn::Module& model, const Checkpoint& checkpoint, int models = 1);

}  // namespace tandem
