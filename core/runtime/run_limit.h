#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

namespace tandem::engine {

/// Where a run ends if that is before its last batch. Any thread can move the end forward while lanes run;
/// they then do every batch before it whole, and none after it. Batches have the numbers of the session. The
/// ranks of a process share one limit. Ranks that are processes agree: each of them calls `hold`, and then
/// each calls `end_at` with the largest number that a `hold` returned.
class RunLimit {
 public:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  /// Returns whether a lane may work on `batch`. While batches are held, a batch that no lane has begun
  /// waits, unless `stopped` is set.
  bool admits(std::int64_t batch, const std::atomic<bool>& stopped) {
    return batch < begun_.load(std::memory_order_acquire) || begin(batch, stopped);
  }
  /// Lets all batches before `batch` begin whenever they come, for a part of the run that cannot end early.
  /// Returns `batch`, or where the run ends if that is earlier. While batches are held, it waits.
  std::int64_t claim(std::int64_t batch);
  /// Batches from here on have not begun: the run continues from an earlier one.
  void begin_at(std::int64_t batch);
  /// No further batch begins from here on. Returns the first one that has not begun.
  std::int64_t hold();
  /// The run ends before `batch`, or does not end early (kNone); batches are no longer held.
  void end_at(std::int64_t batch);
  std::int64_t end() const { return end_.load(std::memory_order_acquire); }

 private:
  bool begin(std::int64_t batch, const std::atomic<bool>& stopped);
  std::atomic<std::int64_t> begun_{0};  // all batches before this one
  std::atomic<std::int64_t> end_{kNone};
  std::mutex mutex_;  // guards changes of all members
  std::condition_variable released_;
  bool held_ = false;
};

}  // namespace tandem::engine
