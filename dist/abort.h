#pragma once
#include <atomic>
#include <mutex>
#include <string>

namespace tandem::engine {

/// A run's stop signal: raised once, with the first reason given.
class AbortFlag {
 public:
  /// True for the call that raised it; later reasons are dropped.
  bool raise(const std::string& reason);
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  /// Throws Aborted with the reason once raised.
  void check() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

/// A Comm that can tell, outside its blocking calls, that the run was aborted: what a decorator that
/// sleeps needs to know.
class AbortAware {
 public:
  virtual ~AbortAware() = default;
  /// Throws Aborted once any rank it can hear has called `abort`. Cheap; never blocks.
  virtual void throw_if_aborted() = 0;
};

}  // namespace tandem::engine
