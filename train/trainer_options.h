#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/runtime/comm.h>
#include <tandem/datasets/dataset.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/all_reduce_options.h>
#include <tandem/train/lr_schedule.h>
#include <tandem/train/model_array.h>
#include <tandem/train/objective.h>
#include <tandem/train/recovery.h>

namespace tandem {

struct TrainerOptions {
  Strategy strategy{};  ///< optimizer, precision, ranks, stages, threads, …
  /// How many models train at once, in order of models: {4, 4} trains the first four for an epoch, then the
  /// other four, whose states wait in a copy meanwhile. An array lies in one turn. Empty: all train at once.
  std::vector<int> turns{};
  std::int64_t batch_size = 32;  ///< samples in the global batch
  std::int64_t epochs = 1;       ///< 0: as many as `batches` needs
  std::int64_t batches = 0;      ///< 0: as `epochs` says; with both, the run ends at the first to be reached
  std::vector<double> lr = {0.1};
  /// Returns the schedule that multiplies a model's rate `lr` batch by batch; if empty, the rate is constant.
  std::function<LrSchedule(const RunLength&, double lr)> lr_schedule{};
  std::vector<std::uint64_t> seeds = {0};  ///< per model, for what it draws (dropout)
  Objective objective = classification();
  DatasetPtr test{};                  ///< evaluated after each epoch
  std::int64_t patience = 0;          ///< end after so many epochs without a better accuracy; 0: never
  bool drop_last = false;             ///< leave out samples that do not fill an epoch's last batch
  int workers = 0;                    ///< threads that load batches ahead; no loss depends on their number
  std::int64_t checkpoint_every = 0;  ///< batches between calls of `checkpoint`, and one at the end; 0: none
  bool score_checkpoints = false;     ///< evaluate the model for each checkpoint
  OnNonFinite on_non_finite = OnNonFinite::stop;
  /// Stops models after an epoch: those that `below_median` returns (train_progress.h). It needs `test`.
  bool prunes = false;
  int max_rollbacks = 3;  ///< per run; one more throws NonFinite
  std::size_t spans = 0;  ///< executions per lane that the Session's timeline holds
  AllReduceOptions all_reduces{};
  /// If ranks are processes: the Comm of this rank, and `spare`, a second one for messages between batches
  /// and after a failure. Otherwise ranks are threads, and `comms` can give their Comms, as for a Session.
  std::vector<std::unique_ptr<engine::Comm>> comms{};
  std::unique_ptr<engine::Comm> spare{};
  std::function<void(const std::string&)>
      log{};  ///< called, when the Trainer is made, with its dense_tables()
};

/// Throws Error if options are out of range, or do not fit together or the dataset to train on.
void check(const TrainerOptions& options, const Dataset* train);

}  // namespace tandem
