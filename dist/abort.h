#pragma once
#include <atomic>
#include <mutex>
#include <string>

namespace tandem::engine {

/// A run's stop signal. It is raised once, and keeps the reason of that first call.
class AbortFlag {
 public:
  /// Returns true for the call that raised the flag; later reasons are dropped.
  bool raise(const std::string& reason);
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  /// Throws Aborted with the reason if the flag is raised.
  void check() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

/// A Comm that reports an abort outside its blocking calls too. A Comm that wraps another and sleeps needs
/// this.
class AbortAware {
 public:
  virtual ~AbortAware() = default;
  /// Throws Aborted if any rank that can reach this one has called `abort`. Cheap; never blocks.
  virtual void throw_if_aborted() = 0;
};

}  // namespace tandem::engine
