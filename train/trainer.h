#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/session.h>
#include <tandem/datasets/dataset.h>
#include <tandem/nn/module.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/batch_timer.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/checkpoint.h>
#include <tandem/train/lr_schedule.h>
#include <tandem/train/objective.h>
#include <tandem/train/recovery.h>

namespace tandem {

class TrainFeed;
class TestFeed;

/// In batches.
struct RunLength {
  std::int64_t per_epoch = 0, total = 0;
};

struct TrainerOptions {
  Strategy strategy{};           ///< optimizer, precision, ranks, stages, threads, …
  std::int64_t batch_size = 32;  ///< of the global batch
  std::int64_t epochs = 1;       ///< 0: as many as `batches` takes
  std::int64_t batches = 0;      ///< 0: by epochs; with both, whichever ends first
  std::vector<double> lr = {0.1};
  /// What the rate `lr` of a model is multiplied with, batch by batch; constant without one.
  std::function<LrSchedule(const RunLength&, double lr)> lr_schedule{};
  std::vector<std::uint64_t> seeds = {0};  ///< per model, of what the models draw (dropout)
  Objective objective = classification();
  DatasetPtr test{};                  ///< evaluated after each epoch
  std::int64_t patience = 0;          ///< ends after so many epochs without a better accuracy; 0: never
  bool drop_last = false;             ///< leave out what does not fill an epoch's last batch
  int workers = 0;                    ///< threads that load batches ahead; no loss depends on it
  std::int64_t checkpoint_every = 0;  ///< batches between calls of `checkpoint`, and one at the end; 0: none
  bool score_checkpoints = false;     ///< evaluate for each of them
  OnNonFinite on_non_finite = OnNonFinite::stop;
  int max_rollbacks = 3;  ///< of a run; one more throws NonFinite
  std::size_t spans = 0;  ///< executions per lane that the Session's timeline holds
  /// Where ranks are processes: this one's Comm, and a second one for what is said between batches and after
  /// a failure. Else ranks are threads, and their Comms may be given, as to a Session.
  std::vector<std::unique_ptr<engine::Comm>> comms{};
  std::unique_ptr<engine::Comm> spare{};
};

/// The loop over epochs and batches: trains a model on a dataset, evaluates it, and tells Callbacks.
///
///     Trainer trainer(net, train_set, {.batch_size = 64, .epochs = 3, .lr = {0.05}, .test = test_set});
///     trainer.add({.end_epoch = [](const EpochResult& e) { … }});
///     trainer.fit();
///
/// Samples come in the dataset's order (ShuffledDataset draws another each epoch). The schedule is drained
/// after every epoch and for checkpoints, at batches that do not depend on where the run began: so a run that
/// goes on gives the bits of the run that did not end. Where ranks are processes, all make the same calls.
class Trainer final : private Recoverable {
 public:
  /// Begins from the model's state; of several models `load` must give it. `model` must outlive this. Throws
  /// Error on options that make no sense, and what build and Session throw.
  Trainer(nn::Module& model, DatasetPtr train, TrainerOptions options = {});
  ~Trainer() override;

  /// What the callbacks use must outlive `fit`.
  void add(Callbacks callbacks) { callbacks_.push_back(std::move(callbacks)); }
  /// Begins from another state, or goes on with a run: `progress` is a CheckpointResult's.
  void load(const StateDict& state, TrainProgress progress = {});
  /// Goes on with the run that was saved there as `checkpoint_files` (train_checkpoint.h). Model, optimizer
  /// and number of models must be its own, and its batch within the run's length, or an Error says
  /// what differs, and nothing is changed; that data, rates and seeds are its own is the caller's to see to.
  void load(const Checkpoint& checkpoint);

  /// Trains to the end, from which on the model has the weights (one model, and on the rank that gets the
  /// losses). Returns the means over the run with the last epoch's loss and accuracy. Throws NonFinite, where
  /// a loss or what a checkpoint would hold is not finite; what callbacks throw; and what Session::run
  /// throws. On a rank that is a process, Aborted may mean that another one waits for `help_explain`.
  EpochResult fit();
  /// The part of the test set that is right, per model; empty on other ranks than that which gets the losses.
  /// Not to be called from Callbacks::batch, while the training Program runs: that is an Error.
  std::vector<double> evaluate();
  /// Is nothing left to train: all batches are done, or the patience is at its end?
  bool finished() const;
  /// Ends the run after this epoch; to be called from callbacks.
  void stop_after_epoch() { stopping_ = true; }

  const TrainProgress& progress() const { return progress_; }
  const RunLength& length() const { return length_; }
  engine::Session& session() { return *session_; }
  /// The rank that gets the losses, and calls back: the last stage's of the first replica.
  int main_rank() const override { return options_.strategy.stages - 1; }
  bool is_main() const { return !options_.spare || options_.spare->rank() == main_rank(); }

  /// To be called on a rank that is a process when another one failed, perhaps the main one because of a loss
  /// that is not finite: gives it what this one holds. Whoever failed ends the job, and this wait with it.
  void help_explain();

 private:
  void check() const;
  std::int64_t samples_of(std::int64_t batch) const;
  engine::Program program(std::int64_t batch_size, bool training);
  void add_evaluation();
  double rate(std::size_t model, std::int64_t batch) const;
  std::int64_t next_drain() const;
  bool at_epoch_end() const { return progress_.batch % length_.per_epoch == 0; }
  void run_section(std::int64_t end);
  void arrived(std::int64_t batch, const std::vector<double>& loss);
  void begin_epoch();
  void end_epoch();
  bool checkpoint_is_due(bool ends) const;
  void save();
  void give_weights_to_model();
  bool agree_to_end();
  EpochResult result(const BatchTimer::Total& time) const;
  std::string where_non_finite(std::int64_t batch, const StateDict& state);
  // Recoverable
  RunPoint point() const override;
  void go_back(const RunPoint& point) override;
  void go_on(std::int64_t end) override;
  bool is_finite() const override;
  std::string explain(std::int64_t batch) override;
  void report(const NonFiniteBatch& batch) const override { tell(&Callbacks::non_finite, batch); }
  std::int64_t share(std::int64_t value, int root) const override;

  template <class F, class... Args> void tell(F Callbacks::*what, const Args&... args) const {
    for (const Callbacks& c : callbacks_)
      if (is_main() && c.*what) (c.*what)(args...);
  }

  nn::Module& model_;
  DatasetPtr train_;
  TrainerOptions options_;
  std::vector<Callbacks> callbacks_;
  std::vector<LrSchedule> lr_schedules_;  // per model
  RunLength length_;
  std::unique_ptr<TrainFeed> feed_;
  std::unique_ptr<TestFeed> test_;
  std::unique_ptr<engine::Session> session_;
  Recovery recovery_;
  engine::ProgramHandle trains_last_, evaluates_;
  TrainProgress progress_;
  StateDict copy_;                // of the state, for checkpoints
  std::vector<double> accuracy_;  // of the test set
  std::int64_t evaluated_ = -1;   // after so many batches
  bool stopping_ = false;
  BatchTimer timer_;
};

}  // namespace tandem
