#pragma once
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/plan/memory_budget.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/event_file.h>

#include "made_directories.h"
#include "summary_csv.h"
#include "train_options.h"

namespace tandem::apps {
using namespace engine;

struct Summary {
  std::vector<double> train_loss;     ///< per model, mean over the last epoch
  std::vector<double> test_accuracy;  ///< per model
  std::int64_t skipped = 0;           ///< losses that were not finite
  double images_per_second = 0, step_ms = 0;
  std::int64_t peak_bytes = 0, planned_peak_bytes = 0, live_peak_bytes = 0;
  bool simulated = false;
};

/// The name of the file with what a run found out about its all-reduces.
inline constexpr const char* kAllReduces = "all-reduce.json";

/// Returns all options as JSON: the contents of args.json.
std::string to_json(const TrainOptions& options);

/// The files that a run leaves: args.json, config.toml (for --config), metrics.jsonl (an object per batch),
/// summary.csv (a row per epoch), a TensorBoard event file, summary.json. Without a directory it writes
/// nothing. With several models, per-model numbers are arrays.
class RunDirectory {
 public:
  RunDirectory() = default;
  /// Locks the directory --output, if it exists, for this run, and changes nothing. Throws Error naming it if
  /// another run writes there.
  explicit RunDirectory(const TrainOptions& options);
  /// Creates the directory, and keeps its contents. Throws Error naming it if it cannot be written, or if it
  /// holds a run that this run neither replaces (--force) nor continues (`in_place`). A directory that this
  /// created is removed again if it is still empty when this object is destroyed.
  void claim(const TrainOptions& options, bool in_place);
  /// Removes a directory that this created if it is empty: for a process that ends without destructors.
  void remove_if_empty() const;
  /// Removes what is left of an earlier run, and writes args.json. A run that continues in place after
  /// `batches` batches keeps its checkpoints and its metrics so far.
  void start(const TrainOptions& options, std::int64_t batches = 0);
  /// Returns callbacks that record the training; this object must outlive them. If a file cannot be written,
  /// they log that and record no more.
  Callbacks callbacks();
  void summary(const Summary& summary);
  /// Writes all-reduce.json: what a run measured of a stage's backward pass, and the plan it made of it; for
  /// later stages all-reduce-1.json and so on. Removes those of an earlier run that had more stages.
  void all_reduces(const AllReduceReport& report);
  /// Writes plan.json, with which another run has the same stages and memory plans. Empty text: no file.
  void plan(const std::string& text) const;
  /// Writes memory.json: the memory problem of a device; of later ones memory-1.json and so on.
  void memory_problems(const std::vector<DevicePlan>& devices) const;
  std::string path(const std::string& file) const;
  bool keeps() const { return !directory_.empty(); }

 private:
  /// Throws Error naming a file that is not a run's and would be replaced or removed.
  void require_no_foreign_file(const TrainOptions& options) const;
  /// Makes the directory, and locks it if it is not locked yet. Throws Error if another run has locked it.
  void make();
  void require_no_input(const TrainOptions& options) const;
  void lock_earlier_models(const TrainOptions& options);
  void remove_earlier_run();
  void go_on_after(std::int64_t batches);
  template <class F> void record(const F& write);
  void batch(const BatchResult& batch);
  void write(const BatchResult& batch);
  void epoch(const EpochResult& epoch);
  std::string directory_;
  bool in_place_ = false, lost_ = false;
  // Keep other runs from writing here, and in the directories of an earlier sweep's models.
  std::shared_ptr<const void> lock_;
  std::vector<std::shared_ptr<const void>> model_locks_;
  // Those that this made, the innermost first; removed with it if nothing was written, before the lock goes.
  std::shared_ptr<const Directories> created_;
  std::ofstream metrics_;
  SummaryCsv csv_;
  std::optional<EventFile> events_;
  int models_ = 1;
  std::int64_t events_every_ = 0;
  std::map<std::int64_t, BatchResult> earlier_turns_;  // by batch: lines wait for its last turn
};

}  // namespace tandem::apps
