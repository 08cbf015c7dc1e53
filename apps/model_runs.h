#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/checkpoint_writer.h>

#include "run_directory.h"
#include "run_state.h"

namespace tandem::apps {

/// What a model of a sweep has learned.
struct RankedModel {
  std::string name, own, command;  ///< what it has of its own, and the command that trains it alone
  double accuracy = 0, loss = 0;   ///< the last ones that are finite
  bool diverged = false;
  std::string fate{};  ///< if it stopped early
};
/// Prints the models from the best to the worst.
void print_ranking(std::vector<RankedModel> models);

/// The models of a sweep as runs of their own: each has a directory model-K in --output with the files and
/// checkpoints that a run of it alone would leave, from which --resume goes on with it alone.
class ModelRuns {
 public:
  /// Nothing, if the options have no sweep.
  ModelRuns() = default;
  /// Claims the directories, if there is an --output (RunDirectory::claim), and changes nothing in them.
  ModelRuns(const TrainOptions& options, bool in_place);
  /// As RunDirectory::remove_if_empty, for each model.
  void remove_empty_directories() const;
  /// Sets what the ranking says of the models at the begin of a run. `begin` is the sweep's.
  void describe(const RunState& begin);
  /// Begins the directories; a run that continues keeps what they hold. `failed` is told of checkpoints that
  /// could not be saved.
  void start(const RunState& begin, const std::function<void(std::int64_t, const std::string&)>& failed);
  /// Records what the models do. This object must outlive them.
  Callbacks callbacks();
  /// Saves each model that trained since its last checkpoint. `network` gives names and layouts.
  void save(const CheckpointResult& checkpoint, nn::ModuleBase& network, std::int64_t epoch);
  /// Waits until everything is saved.
  void wait();
  void write_summaries(const Summary& summary);
  std::vector<RankedModel> ranking() const;

 private:
  struct Model {
    TrainOptions options;  // of a run of this model alone
    RunState begin;
    std::unique_ptr<RunDirectory> directory;
    Callbacks records{};
    std::unique_ptr<CheckpointWriter> writer{};
    std::string command, own;   // what differs from the other models
    std::int64_t stopped = -1;  // after so many batches
    bool diverged = false, is_saved = false;
    double accuracy = 0, loss = 0;  // the last ones that are finite
  };
  bool writes() const { return !models_.empty() && !models_[0].options.output.empty(); }
  void batch(const BatchResult& all);
  void epoch(const EpochResult& all, bool is_end);
  std::vector<Model> models_;
};

}  // namespace tandem::apps
