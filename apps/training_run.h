#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <tandem/core/runtime/profile.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/train/checkpoint_writer.h>
#include <tandem/train/trainer.h>

#include "cifar_data.h"
#include "model_runs.h"
#include "recipe.h"
#include "resume.h"
#include "run_directory.h"
#include "run_state.h"
#include "signal_watch.h"
#include "train_options.h"
#include "training_memory.h"

namespace tandem::apps {
using namespace engine;

class ProgressLine;

/// A run of train_cifar: a Trainer made from options, with a run directory, checkpoints, a progress line and
/// handling of signals.
class TrainingRun {
 public:
  using Adjust = std::function<void(TrainerOptions&)>;
  /// `adjust` changes what the Trainer is made with.
  TrainingRun(TrainOptions options, SignalWatch& signals, MpiSession* mpi, Adjust adjust = {});
  /// Finds what the run begins from, and keeps other runs from writing into its directory. Throws Error if it
  /// cannot begin so. Nothing in it takes long.
  void claim();
  /// Trains, evaluates or predicts, and writes the run directory, which it has claimed. Throws Error; the
  /// message of NonFinite names the first module whose output is not finite.
  void run(const CifarImages& images);
  /// Returns the rank that gets the losses or predicts. It prints, and writes the run directory.
  int main_rank() const { return options_.simulate ? 0 : options_.last_device; }
  /// After `run`: returns, on all ranks, the signal that the main rank got meanwhile, or 0. A run can have
  /// been in its last evaluation by then, and complete.
  int signal() const;
  /// Returns, on the main rank, the models of a sweep that `run` has trained.
  std::vector<RankedModel> ranking() const { return ranking_; }

 private:
  bool is_main() const { return !mpi_ || mpi_->rank() == main_rank(); }
  bool are_processes() const { return mpi_ && mpi_->size() > 1; }
  void perform(const CifarImages& images);
  void meet() const;
  CommOptions comm_options() const;
  void require_profile_of_this_machine();
  /// Sets the cuts that a plan leaves open.
  void cut(const Graph& forward, Strategy& strategy);
  void agree_on_arguments() const;
  void agree_on_checkpoint();
  AllReduceOptions all_reduce_options(const Strategy& strategy, const CoreShares& cores) const;
  TrainerOptions trainer_options(const Strategy& strategy, const CoreShares& cores,
                                 const DatasetPtr& test) const;
  std::vector<std::unique_ptr<Comm>> comms() const;
  std::unique_ptr<CheckpointWriter> checkpoint_writer(std::int64_t total) const;
  void say_that_save_failed(const std::string& what, std::int64_t batch, std::int64_t total,
                            const std::string& why) const;
  std::shared_ptr<const void> announced(const Session& session) const;
  void make_networks();
  StateDict initial_state() const;
  void load(Trainer& trainer) const;
  std::vector<double> evaluate(Trainer& trainer);
  void train(Trainer& trainer);
  std::shared_ptr<const void> ending_by(Trainer& trainer) const;
  void stop_run(Trainer& trainer, int signal) const;
  void end_run(Trainer& trainer, int signal) const;
  std::string what_it_does(Trainer& trainer) const;
  void say_what_it_did(int signal, const std::string& doing) const;
  bool is_sweep() const { return !options_.swept.empty(); }
  Graph forward(const CifarData& data, std::int64_t samples) const;
  std::unique_ptr<Trainer> trainer(const CifarData& data, TrainerOptions with) const;
  void tell_others(const std::string& why) const;
  void save_what_was_traced(Trainer& trainer) const;
  void say_what_is_left(CheckpointWriter* writer, ProgressLine& progress);
  void say_what_it_trains(const Trainer& trainer, const CoreShares& cores) const;
  void report(const EpochResult& end, const Trainer::Peaks& peaks);
  void set_ranking(const std::vector<double>& accuracy, const std::vector<double>& loss);
  void say_where_it_is(std::int64_t batches) const;

  TrainOptions options_;
  SignalWatch& signals_;
  MpiSession* mpi_;
  const Adjust adjust_;
  std::unique_ptr<Comm> meeting_;  ///< of processes, for their end
  RunDirectory directory_;
  Start start_;
  RunState begin_;  ///< the state in which this run begins
  /// The Session that runs, for the watch of its ranks, which can outlive this object.
  struct Running {
    std::mutex mutex;
    const Session* session = nullptr;
  };
  const std::shared_ptr<Running> running_ = std::make_shared<Running>();
  ModelRuns model_runs_;
  std::optional<SignalWatch::BeforeEnd> before_end_;  ///< removes the directories if nothing was written
  std::vector<RankedModel> ranking_;
  int classes_ = 10;
  TrainingMemory memory_;
  std::string plan_;                ///< what plan.json will hold
  std::optional<Profile> profile_;  ///< of --profile
  std::int64_t test_images_ = 0;
  mutable std::atomic<std::int64_t> failed_save_ = -1;  ///< batch of the last checkpoint that failed to save
  mutable std::atomic<bool> is_ending_ = false;         ///< a signal has asked it to
  std::vector<std::unique_ptr<nn::Module>>
      networks_;  ///< one that stands for all models, or those of a sweep
};

}  // namespace tandem::apps
