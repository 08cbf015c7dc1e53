#pragma once
#include <map>
#include <memory>
#include <string>

#include <tandem/core/tensor.h>
#include <tandem/datasets/cifar.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/plan/checkpoint_writer.h>
#include <tandem/plan/session.h>
#include <tandem/plan/strategy.h>

#include "resume.h"
#include "run_directory.h"
#include "run_state.h"
#include "signal_watch.h"
#include "train_options.h"
#include "training_log.h"

namespace tandem::apps {

/// A training run from options to summary: what train_cifar is.
class Trainer {
 public:
  Trainer(TrainOptions options, SignalWatch& signals, MpiSession* mpi);
  /// Trains, evaluates or predicts, and writes the run directory. Throws Error; NonFinite with the first
  /// module whose output is not finite in its message.
  void run();
  /// The rank that gets the losses, or that predicts: it prints, evaluates and writes the run directory.
  int main_rank() const { return options_.simulate ? 0 : options_.stages - 1; }

 private:
  /// What a run that trains consists of; the pointers are the main rank's.
  struct Run {
    Session& session;
    CifarTraining& host;
    CifarEvaluation& evaluation;
    int trains_last, evaluates;  ///< numbers of Programs
    TrainingLog* log = nullptr;
    CheckpointWriter* writer = nullptr;
  };
  bool is_main() const { return !mpi_ || mpi_->rank() == main_rank(); }
  Strategy strategy() const;
  int compute_lanes() const;  ///< that share the cores this process may use
  int lane_threads() const;
  int loader_threads() const;  ///< that share them as well
  bool has_own_cores() const;  ///< mpirun gave this process some
  LoaderOptions ahead(const Program& program) const;
  std::map<std::string, Tensor> initial_state() const;
  void agree_on_checkpoint();
  std::unique_ptr<CheckpointWriter> checkpoint_writer() const;
  void save_checkpoint(const Run& run, std::int64_t batch);
  Program training_program(const Strategy& strategy) const;
  Graph forward_graph(std::int64_t samples, bool training) const;
  std::vector<std::unique_ptr<Comm>> comms() const;
  MemoryDataset read_data(CifarSplit split) const;
  void check_last_batch(std::int64_t images) const;
  void train(const DatasetPtr& train, const DatasetPtr& test);
  std::unique_ptr<TrainingLog> begin(const CifarTraining& host, int threads);
  void end_run(Session& session, int signal) const;
  void run_epochs(const Run& run);
  std::vector<double> evaluate(Session& session, CifarEvaluation& evaluation, int program) const;
  void help_explain(const Session& session, Comm& spare) const;
  void save_what_was_traced(Session& session) const;
  void write_trace(const Timeline& timeline) const;
  void simulate(const DatasetPtr& train);
  void report(const TrainingLog& log, const Session& session, std::int64_t peak,
              const std::vector<double>& accuracy);
  std::string where_non_finite(const DatasetPtr& train, const std::map<std::string, Tensor>& state,
                               std::int64_t batch) const;

  TrainOptions options_;
  SignalWatch& signals_;
  MpiSession* mpi_;
  RunDirectory directory_;
  Start start_;
  RunState begin_;                      ///< what this run begins with
  std::map<std::string, Tensor> copy_;  ///< of the state, for the writer of checkpoints
  int classes_ = 10;
};

}  // namespace tandem::apps
