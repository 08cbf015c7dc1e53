#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace tandem::apps {

/// Takes SIGINT and SIGTERM on a thread of its own, where, unlike in a signal handler, anything may be done.
/// The first one is passed on where someone asked for it; any other ends the process at once with status 130,
/// as shells report Ctrl-C.
class SignalWatch {
 public:
  /// To be made before any other thread: those made later leave the signals to this one.
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Whether a signal came.
  bool signalled() const { return signal_ != 0; }

  /// While it lives, the first signal calls `f(signal)` on the watch's thread.
  class During {
   public:
    During(SignalWatch& watch, std::function<void(int signal)> f);
    ~During();
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    SignalWatch& watch_;
  };

 private:
  void work();
  std::mutex mutex_;
  std::function<void(int)> call_;
  std::atomic<int> signal_{0};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace tandem::apps
