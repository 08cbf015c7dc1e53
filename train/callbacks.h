#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/plan/measure_prediction.h>
#include <tandem/train/all_reduce_report.h>
#include <tandem/train/train_progress.h>

namespace tandem {

/// The results of one batch, or of one turn of it.
struct BatchResult {
  std::int64_t batch = 0, epoch = 0;  ///< from 0
  std::int64_t samples = 0;
  std::vector<double> loss, lr;  ///< per model
  double seconds = 0;            ///< since the previous batch's result, without time that was not training
  std::vector<PredictionError> prediction{};  ///< by stage, as Strategy::measure_prediction says
  /// The models that trained in this turn; the losses of the others are NaN.
  std::vector<int> models{};
  bool is_last_turn = true;  ///< no other models train this batch later (TrainerOptions::turns)
};

/// Means over an epoch, or over a run.
struct EpochResult {
  std::int64_t epoch = 0;              ///< from 0; for a run, its last epoch
  std::int64_t batches = 0;            ///< trained since the run began, in all epochs
  std::vector<double> loss, lr;        ///< per model; loss: the mean over the epoch, lr: of its last batch
  std::vector<double> accuracy;        ///< per model, on the test set; empty if there is no test set
  double step_ms = 0;                  ///< mean over all batches except the run's first, which warms up
  double samples_per_second = 0;       ///< over the same batches
  std::int64_t losses_not_finite = 0;  ///< over the run
};

/// The contents of a checkpoint. `state` is a copy.
struct CheckpointResult {
  TrainProgress progress;
  StateDict state;
  std::vector<double> accuracy;  ///< per model; empty if checkpoints are not scored
};

/// A batch whose loss or gradients are not finite. The run continues without it.
struct NonFiniteBatch {
  std::int64_t batch = 0;
  std::string where;          ///< "the first value that is not finite is sqrt in module 'norm'"; may be empty
  std::int64_t back_to = -1;  ///< the batch from which the run continues; -1: it does not go back
  bool is_left_out = true;    ///< false: the run goes back and ends there, or on the way
};

/// Functions that a Trainer calls on the rank that gets the losses; empty ones are skipped. `batch` runs on a
/// thread of the engine, in order of batches (of each turn), while later batches run; once everything is
/// measured of its batch, which Strategy::measure_prediction can delay until after the batch's update. The
/// others run between batches, on the thread that called `fit`. An exception ends the run; one from `batch`
/// becomes an Error that says where in the run it occurred. `batch` cannot read the model's parameters, which
/// later batches change meanwhile.
struct Callbacks {
  std::function<void()> begin{};
  std::function<void(std::int64_t epoch)> begin_epoch{};
  std::function<void(const std::vector<int>& models)> begin_turn{};  ///< if models take turns
  std::function<void(const BatchResult&)> batch{};
  std::function<void()> begin_evaluation{};  ///< of each turn, if models take turns
  std::function<void(const EpochResult&)> end_epoch{};
  /// Called before the state is copied for `checkpoint`. If the previous copy has no other user by then, its
  /// memory is used again. Wait here for a thread that reads it, or let it keep the copy until this returns.
  std::function<void()> before_checkpoint{};
  std::function<void(CheckpointResult)> checkpoint{};  ///< called before training continues
  std::function<void(const EpochResult&)> end{};
  /// Called for the first skipped batch only, and for each batch that makes the run go back. Batches from
  /// `back_to` on then come again.
  std::function<void(const NonFiniteBatch&)> non_finite{};
  /// Called for a diverged model in its batch, on that thread; for a pruned one after end_epoch.
  std::function<void(const StoppedModel&)> stopped{};
  /// Called once the all-reduces are planned and have run (TrainerOptions::all_reduce).
  std::function<void(const AllReduceReport&)> all_reduces_planned{};
};

}  // namespace tandem
