#pragma once
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include <tandem/train/callbacks.h>
#include <tandem/train/event_file.h>

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

/// All that an option may say, as JSON: what args.json holds.
std::string to_json(const TrainOptions& options);

/// What a run leaves behind: args.json, config.toml (for --config), metrics.jsonl (an object per batch),
/// summary.csv (a row per epoch), a TensorBoard event file, summary.json. Without a directory it keeps
/// nothing. With several models, per-model numbers are arrays.
class RunDirectory {
 public:
  RunDirectory() = default;
  /// Takes the directory --output, where it is there already, for this run alone; nothing is changed. Throws
  /// Error naming it when another run writes there.
  explicit RunDirectory(const TrainOptions& options);
  /// Makes the directory, and leaves what it holds. Throws Error naming it when it cannot be written, or
  /// holds a run and is neither to replace it (--force) nor to go on with it (`in_place`).
  void claim(const TrainOptions& options, bool in_place);
  /// Removes what is left of an earlier run, and writes args.json. A run that goes on, in place, after
  /// `batches` keeps its checkpoints and its metrics so far.
  void start(const TrainOptions& options, std::int64_t batches = 0);
  /// Writes what comes of training; the directory must outlive it. The first file that cannot be written is
  /// said, and is the last.
  Callbacks callbacks();
  void summary(const Summary& summary);
  std::string path(const std::string& file) const;
  bool keeps() const { return !directory_.empty(); }

 private:
  void remove_earlier_run();
  void go_on_after(std::int64_t batches);
  template <class F> void record(const F& write);
  void batch(const BatchResult& batch);
  void epoch(const EpochResult& epoch);
  std::string directory_;
  bool in_place_ = false, lost_ = false;
  std::shared_ptr<const int> lock_;  // no other run writes here meanwhile
  std::ofstream metrics_;
  SummaryCsv csv_;
  std::optional<EventFile> events_;
  int models_ = 1;
  std::int64_t events_every_ = 0;
};

}  // namespace tandem::apps
