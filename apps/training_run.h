#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/train/checkpoint_writer.h>
#include <tandem/train/trainer.h>

#include "cifar_data.h"
#include "recipe.h"
#include "resume.h"
#include "run_directory.h"
#include "run_state.h"
#include "signal_watch.h"
#include "train_options.h"

namespace tandem::apps {
using namespace engine;

/// What train_cifar is: a Trainer made of options, with a run directory, checkpoints, progress and signals
/// around it.
class TrainingRun {
 public:
  TrainingRun(TrainOptions options, SignalWatch& signals, MpiSession* mpi);
  /// Trains, evaluates or predicts, and writes the run directory. Throws Error; NonFinite with the first
  /// module whose output is not finite in its message.
  void run();
  /// The rank that gets the losses, or that predicts: it prints, and writes the run directory.
  int main_rank() const { return options_.simulate ? 0 : options_.stages - 1; }

 private:
  bool is_main() const { return !mpi_ || mpi_->rank() == main_rank(); }
  bool are_processes() const { return mpi_ && mpi_->size() > 1; }
  void agree_on_arguments() const;
  void agree_on_checkpoint();
  TrainerOptions trainer_options(const Strategy& strategy, const DatasetPtr& test) const;
  std::vector<std::unique_ptr<Comm>> comms() const;
  std::unique_ptr<CheckpointWriter> checkpoint_writer() const;
  void load(Trainer& trainer) const;
  void evaluate(Trainer& trainer);
  void train(Trainer& trainer);
  void end_run(Session& session, int signal) const;
  void save_what_was_traced(Session& session) const;
  void say_what_is_left(CheckpointWriter* writer) const;
  void report(Trainer& trainer, const EpochResult& end, std::int64_t peak);

  TrainOptions options_;
  SignalWatch& signals_;
  MpiSession* mpi_;
  RunDirectory directory_;
  Start start_;
  RunState begin_;  ///< what this run begins with
  int classes_ = 10;
  mutable std::atomic<std::int64_t> failed_save_ = -1;  ///< of the last checkpoint that could not be saved
  std::unique_ptr<nn::Module> network_;
};

}  // namespace tandem::apps
