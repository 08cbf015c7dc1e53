#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/session.h>
#include <tandem/datasets/dataset.h>
#include <tandem/nn/module.h>
#include <tandem/train/active_models.h>
#include <tandem/train/batch_timer.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/checkpoint.h>
#include <tandem/train/lr_schedule.h>
#include <tandem/train/model_array.h>
#include <tandem/train/recovery.h>
#include <tandem/train/trainer_options.h>

namespace tandem {

class AllReduceTuning;
class StateLink;
class TrainFeed;
class TestFeed;

/// The loop over epochs and batches: trains a model on a dataset, evaluates it, and calls Callbacks.
///
///     Trainer trainer(net, train_set, {.batch_size = 64, .epochs = 3, .lr = {0.05}, .test = test_set});
///     trainer.add({.end_epoch = [](const EpochResult& e) { … }});
///     trainer.fit();
///
/// Samples come in the dataset's order (ShuffledDataset draws another each epoch). The Trainer drains the
/// schedule after every epoch and for checkpoints, at batches that do not depend on where the run began, so a
/// resumed run is bit-identical to an uninterrupted one. If ranks are processes, all make the same calls.
class Trainer final : private Recoverable {
 public:
  /// Begins from the model's state; for several models, `load` must set the state. `model` must outlive this
  /// object. Throws Error if options are out of range or do not fit together, and what build and Session
  /// throw.
  Trainer(nn::Module& model, DatasetPtr train, TrainerOptions options = {});
  /// Trains the models side by side, from their states. What an ArrayModel says takes the place of what the
  /// options say of optimizer, clipping, objective, rates and seeds. Throws Error naming the first module in
  /// which the structures of two models differ.
  Trainer(ModelArray models, DatasetPtr train, TrainerOptions options = {});
  ~Trainer() override;

  /// What the callbacks use must outlive `fit`.
  void add(Callbacks callbacks) { callbacks_.push_back(std::move(callbacks)); }
  /// Begins from another state, or continues a run: then `progress` is a CheckpointResult's.
  void load(const StateDict& state, TrainProgress progress = {});
  /// Continues the run that was saved with `checkpoint_files` (train_checkpoint.h). Throws Error, and changes
  /// nothing, if model, optimizer or number of models are not those of the saved run, or if its batch is
  /// beyond the end of this run. The caller must give the same data, rates and seeds.
  void load(const Checkpoint& checkpoint);

  /// Trains to the end. If there is one model, it has the new weights after each epoch; if ranks are
  /// processes, at the end, on the rank that gets the losses. Returns the means over the run with the last
  /// epoch's loss and accuracy. Throws NonFinite if a loss or the state for a checkpoint is not finite, and
  /// what callbacks and Session::run throw. On a rank that is a process, Aborted can mean that another rank
  /// waits for `help_explain`.
  EpochResult fit();
  /// Returns the fraction of correct test samples, per model; empty except on the rank that gets the losses.
  /// Throws Error in Callbacks::batch, since the training Program is running, and without a test set.
  std::vector<double> evaluate();
  /// Returns whether nothing is left to train: all batches are done, or the patience has run out.
  bool finished() const;
  /// Ends the run after this epoch; for calls from callbacks.
  void stop_after_epoch() { stopping_ = true; }
  /// Ends `fit` soon, on any thread: it drains the batches that have begun, saves a checkpoint, if there are
  /// checkpoints, and throws Aborted(reason). If ranks are processes, all must do it together: each of them
  /// calls `hold`, and then each calls `end_at` with the largest number that a `hold` returned
  /// (CollectiveWatch::request_end does).
  void end_soon(const std::string& reason) { end_at(hold(), reason); }
  /// No further batch begins until `end_at`. Returns the first that has not begun.
  std::int64_t hold() { return limit_.hold(); }
  void end_at(std::int64_t batch, const std::string& reason);
  /// Returns whether `fit` threw because of that, on all ranks.
  bool has_ended_early() const { return ended_early_; }

  const TrainProgress& progress() const { return progress_; }
  const RunLength& length() const { return length_; }
  /// The Session is another in each turn, and after models were left out: use this between batches, or
  /// `with_session`.
  engine::Session& session() { return *session_; }
  /// Bytes, as Session's functions of these names say: the largest of all Sessions that the run has had. If
  /// ranks are processes, all of them must call.
  struct Peaks {
    std::int64_t planned = 0, live = 0, executed = 0;
  };
  Peaks peaks() const;
  /// Calls `use` on any thread, unless there is no Session any more, and keeps it as it is meanwhile.
  void with_session(const std::function<void(engine::Session&)>& use);
  /// The Session's Program that trains whole batches. It changes while all-reduces are planned.
  engine::ProgramHandle training_program() const;
  /// False until the all-reduces are planned, if TrainerOptions::all_reduces asks for it.
  bool all_reduces_are_planned() const;
  /// Returns why updates of tables are dense, a line per reason; empty if all are sparse, or if the strategy
  /// wants none to be.
  std::vector<std::string> dense_tables() const;
  /// On the main rank: says why AllReduceOptions::known is of another kind of run, so that this one measures
  /// its own times; empty if it is used, or if there is none.
  std::string why_saved_all_reduces_are_unfit() const;
  /// Returns the rank that gets the losses and calls the callbacks: that of the last stage, in the first
  /// replica.
  int main_rank() const override { return options_.strategy.device_of(options_.strategy.stages - 1); }
  bool is_main() const { return !options_.spare || options_.spare->rank() == main_rank(); }

  /// Call it on a rank that is a process after another rank failed. Sends the main rank the state held here,
  /// in case the main rank failed because of a loss that is not finite. Then waits until the failed rank ends
  /// the job.
  void help_explain();

 private:
  std::int64_t samples_of(std::int64_t batch) const;
  struct Settled {};  // options that say what an array's models have of their own
  Trainer(ModelArray models, DatasetPtr train, TrainerOptions options, Settled);
  void prepare();
  void require_session() const;
  void link_models();
  std::vector<DatasetPtr> data() const;
  engine::Graph forward(std::int64_t samples, bool training) const;
  engine::Program program(std::int64_t batch_size, bool training);
  engine::Program built(std::int64_t batch_size, bool training) const;
  void plan_turns();
  void add_evaluation();
  double rate(std::size_t model, std::int64_t batch) const;
  std::int64_t next_drain() const;
  bool at_epoch_end() const { return progress_.batch % length_.per_epoch == 0; }
  bool train_section(std::int64_t end);
  bool train_in_turns(std::int64_t end);
  bool enter(int turn);
  StateDict waiting_state(int model) const;
  // If ranks are processes, other ranks hold part of the state.
  bool are_linked() const { return std::ssize(models_) == options_.strategy.models && !options_.spare; }
  void run_section(std::int64_t end);
  void add_tuning();
  void rehearse(std::int64_t batch, std::int64_t end);
  std::int64_t train(std::int64_t batch, std::int64_t end);
  void arrived(std::int64_t batch, const std::vector<double>& loss);
  void measured(const engine::HostResult& result);
  void tell_measured_batches();
  void begin_epoch();
  bool end_epoch();
  bool checkpoint_is_due(bool ends) const;
  void save();
  void give_weights_to_model();
  static std::string loss_text(const std::vector<double>& loss, std::size_t m, std::int64_t batch);
  void stop_diverged(std::int64_t batch, const std::vector<double>& loss);
  void stop_not_finite(const StateDict& state);
  void stop_without_accuracy();
  bool masks() const { return options_.on_non_finite == OnNonFinite::mask && options_.strategy.models > 1; }
  bool prune();
  void stop(const StoppedModel& model);
  void agree_on_stopped();
  void evaluate_session();
  StateDict of_all_models(StateDict in_session) const;
  StateDict in_session(const StateDict& of_all) const;
  StateDict known_to_session(StateDict state) const;
  void set_state(const StateDict& of_all);
  bool agree_to_end();
  bool agree_to_end_here();
  [[noreturn]] void end_here();
  EpochResult result(const BatchTimer::Total& time) const;
  double mean_accuracy() const;
  std::string where_non_finite(std::int64_t batch, const StateDict& state);
  // Recoverable
  RunPoint point() const override;
  void go_back(const RunPoint& point) override;
  bool go_on(std::int64_t end) override;
  bool is_finite() const override;
  std::string explain(std::int64_t batch) override;
  void report(const NonFiniteBatch& batch) const override { tell(&Callbacks::non_finite, batch); }
  std::int64_t share(std::int64_t value, int root) const override;

  template <class F, class... Args> void tell(F Callbacks::*what, const Args&... args) const {
    for (const Callbacks& c : callbacks_)
      if (is_main() && c.*what) (c.*what)(args...);
  }

  ModelArray models_;  // one that stands for all, or each
  bool own_data_ = false;
  std::unique_ptr<ActiveModels> active_;
  std::map<int, StateDict> waiting_;  // the states of models that the session does not have
  Peaks earlier_;                     // of Sessions that have ended
  bool is_last_turn_ = true;
  struct ProgramKey {
    std::vector<int> models;
    std::int64_t batch_size = 0;
    bool training = true;
    auto operator<=>(const ProgramKey&) const = default;
  };
  std::map<ProgramKey, engine::Program> programs_;  // of turns, which come again
  Strategy strategy_;                               // of the models in the session
  DatasetPtr train_;
  TrainerOptions options_;
  std::vector<Callbacks> callbacks_;
  std::vector<LrSchedule> lr_schedules_;  // per model
  RunLength length_;
  std::unique_ptr<TrainFeed> feed_;
  std::unique_ptr<TestFeed> test_;
  std::unique_ptr<engine::Session> session_;
  std::mutex renewing_;  // held while another Session is made
  Recovery recovery_;
  std::int64_t repeated_peak_ = 0;  // planned, with the memory plans of an earlier run
  engine::ProgramHandle trains_last_, evaluates_;  // the first Program trains whole batches without tuning_
  std::unique_ptr<AllReduceTuning> tuning_;        // if all-reduces are planned
  TrainProgress progress_;
  std::shared_ptr<StateLink> link_;  // to the model, unless ranks are processes
  StateDict copy_;                   // of the state, for checkpoints
  std::vector<double> accuracy_;     // of the test set
  std::int64_t evaluated_ = -1;      // number of batches before the last evaluation
  bool stopping_ = false, ended_early_ = false;
  engine::RunLimit limit_;
  std::mutex ending_;
  std::string why_it_ends_ = "interrupted";  // guarded by ending_
  std::int64_t saved_ = -1;                  // number of batches before the last checkpoint
  BatchTimer timer_;
  std::mutex measuring_;                // guards what follows, if predictions are measured
  std::deque<BatchResult> unmeasured_;  // batches whose losses have arrived
  std::map<std::int64_t, std::vector<PredictionError>> measured_;  // by batch
};

}  // namespace tandem
