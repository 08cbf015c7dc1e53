#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/train/train_progress.h>

namespace tandem {

/// What a batch gave.
struct BatchResult {
  std::int64_t batch = 0, epoch = 0;  ///< from 0
  std::int64_t samples = 0;
  std::vector<double> loss, lr;  ///< per model
  double seconds = 0;            ///< since the result of the batch before, without what was not training
};

/// Means over an epoch, or over a run.
struct EpochResult {
  std::int64_t epoch = 0;              ///< from 0; the last of a run
  std::int64_t batches = 0;            ///< trained on since the run began, in all epochs
  std::vector<double> loss, lr;        ///< per model; loss: the mean over the epoch, lr: of its last batch
  std::vector<double> accuracy;        ///< per model, of the test set; empty without one
  double step_ms = 0;                  ///< of all batches but the run's first, which warms up
  double samples_per_second = 0;       ///< likewise
  std::int64_t losses_not_finite = 0;  ///< over the run
};

/// What a checkpoint is to hold. `state` is a copy.
struct CheckpointResult {
  TrainProgress progress;
  StateDict state;
  std::vector<double> accuracy;  ///< per model; empty where it was not asked for
};

/// A batch whose loss or gradients are not finite, and which the run goes on without.
struct NonFiniteBatch {
  std::int64_t batch = 0;
  std::string where;          ///< "the first value that is not finite is sqrt in module 'norm'"; may be empty
  std::int64_t back_to = -1;  ///< the batch that the run goes on with; -1: it does not go back
};

/// What a Trainer calls, where given, on the rank that gets the losses. `batch` is called on a thread of the
/// engine, in order of batches, while later ones run; the others between batches, on the thread of `fit`.
/// What they throw ends the run; what `batch` throws, as an Error that says where in the run it was.
struct Callbacks {
  std::function<void()> begin{};
  std::function<void(std::int64_t epoch)> begin_epoch{};
  std::function<void(const BatchResult&)> batch{};
  std::function<void()> begin_evaluation{};
  std::function<void(const EpochResult&)> end_epoch{};
  /// Before the state is copied for `checkpoint`. Who has let go of the last copy by then saves a new one's
  /// memory; a thread that reads it has been waited for by then, or keeps it until this call is over.
  std::function<void()> before_checkpoint{};
  std::function<void(CheckpointResult)> checkpoint{};  ///< and with what, before training goes on
  std::function<void(const EpochResult&)> end{};
  /// Of batches that are skipped, the first alone. After one that the run goes back for, batches from
  /// `back_to` on come again.
  std::function<void(const NonFiniteBatch&)> non_finite{};
};

}  // namespace tandem
