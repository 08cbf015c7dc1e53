#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include <tandem/train/callbacks.h>

namespace tandem::apps {

/// Shows the progress of a run: on a terminal a bar with the time left, elsewhere a plain line every `every`
/// batches. Its images/s are the mean since it was last drawn or printed; the time left follows from the last
/// minute. If a step or an evaluation takes
/// long, it says so after `silence` seconds, and again each time when that time has doubled.
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
  void saving() { begin("the last checkpoint"); }
  void saved() { begin(""); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSilence = 10;

  void begin(const std::string& what);
  void begin_step(std::int64_t batch);
  void watch(const std::stop_token& stop);
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

  const Clock::duration silence_;
  std::mutex mutex_;  // of what follows
  std::condition_variable_any changed_;
  std::string doing_{};  // empty: nothing that can take long
  Clock::time_point began_, due_;
  std::jthread watch_;  // the last member: it uses the others
};

}  // namespace tandem::apps
