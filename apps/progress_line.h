#pragma once
#include <cstdint>
#include <deque>
#include <string>

#include <tandem/train/callbacks.h>

#include "long_work.h"

namespace tandem::apps {

/// Shows the progress of a run: on a terminal a bar with the time left, elsewhere a plain line every `every`
/// batches. Its images/s are the mean since it was last drawn or printed; the time left follows from the last
/// minute. It says of a step or an evaluation that takes more than `silence` seconds that it goes on.
class ProgressLine {
 public:
  /// `before`: number of batches done in an earlier run. `turns`: those that models take in each epoch.
  ProgressLine(std::int64_t total, std::int64_t before, int turns, int every, bool terminal,
               double silence = kSilence);

  void update(const BatchResult& batch);
  /// Shows on a terminal that an evaluation is running, and tells it elsewhere if it will take long.
  void testing(std::int64_t images);
  void tested();
  /// The last checkpoint is being saved, until saved().
  void saving() { work_.begin("the last checkpoint"); }
  void saved() { work_.end(); }

 private:
  static constexpr double kSilence = 10;

  void begin_step(std::int64_t batch);
  double seconds_per_update(double seconds);
  std::int64_t total_, before_;
  int turns_, every_;
  bool terminal_;
  std::int64_t updates_ = 0;
  double seconds_ = 0;        // of training
  std::deque<double> parts_;  // seconds per update of parts of the last minute
  double part_seconds_ = 0;   // of the current part
  std::int64_t part_updates_ = 0;
  double since_ = 0;         // part of seconds_ after the last update of the line
  std::int64_t images_ = 0;  // after the last update of the line
  std::int64_t all_images_ = 0;
  std::string last_{};  // text of the last update, without rates
  double done_ = 0;     // fraction of the batches that a bar showed at the last update
  std::int64_t next_;   // batch

  LongWork work_;
};

}  // namespace tandem::apps
