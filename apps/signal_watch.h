#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace tandem::apps {

/// The exit status that tells of a signal: 130 after Ctrl-C, 143 after SIGTERM.
inline int status_after(int signal) { return 128 + signal; }
/// Why a run ended that a signal ended: "interrupted" (SIGINT), "terminated" (SIGTERM).
const char* interruption(int signal);
/// The signal, here or on another rank, that is behind an error; 0 if none is.
int signal_behind(const std::exception& error);

/// Takes SIGINT and SIGTERM on a thread of its own, where, unlike in a signal handler, anything may be done.
/// The first one is passed on where someone asked for it; any other ends the process at once, also while the
/// first is being dealt with, and with the status by which shells report it.
class SignalWatch {
 public:
  /// To be made before any other thread: those made later leave the signals to this one.
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The last signal that came, or 0.
  int signal() const { return signal_; }

  /// While it lives, the first signal calls `f(signal)`, on a thread of its own. Waits for its end.
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
  bool used_ = false;    // someone has asked
  std::jthread caller_;  // of `call_`
  std::atomic<int> signal_{0};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace tandem::apps
