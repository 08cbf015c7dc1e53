#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace tandem::apps {

/// Returns the exit status for a signal: 130 after Ctrl-C, 143 after SIGTERM, 138 after SIGUSR1, 129 after
/// SIGHUP.
inline int status_after(int signal) { return 128 + signal; }
/// Returns the reason for which a signal ends a run: "interrupted" (SIGINT), "terminated" (SIGTERM),
/// "interrupted by SIGUSR1", which Slurm sends before a job's time is over, if it is asked to, and
/// "interrupted by SIGHUP", which a terminal sends that is closed.
const char* interruption(int signal);
/// Returns the signal, on this or another rank, that caused an error; 0 if none did.
int signal_behind(const std::exception& error);

/// Receives SIGINT, SIGTERM, SIGUSR1, and, unless the process ignores it, SIGHUP on a thread of its own,
/// which, unlike a signal handler, can do anything. The first signal goes to the function of a During, if
/// there is one. Any other signal that comes half a second later or more ends the process at once, even while
/// the first is being handled, with the status by which shells report it.
class SignalWatch {
 public:
  /// Create it before any other thread, so that later threads leave the signals to this one.
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Returns the last signal that came, or 0.
  int signal() const { return signal_; }

  /// During its lifetime, the first signal calls `f(signal)` on a thread of its own. The destructor waits for
  /// that call.
  class During {
   public:
    During(SignalWatch& watch, std::function<void(int signal)> f);
    ~During();
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    SignalWatch& watch_;
  };

  /// During its lifetime, a first signal that ends the process at once, because there is no During, calls `f`
  /// before.
  class BeforeEnd {
   public:
    BeforeEnd(SignalWatch& watch, std::function<void()> f);
    ~BeforeEnd();
    BeforeEnd(const BeforeEnd&) = delete;
    BeforeEnd& operator=(const BeforeEnd&) = delete;

   private:
    SignalWatch& watch_;
  };

 private:
  void work();
  std::mutex mutex_;
  std::function<void(int)> call_;
  std::map<const BeforeEnd*, std::function<void()>> before_end_;
  std::jthread caller_;  // runs `call_`
  std::atomic<int> signal_{0};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace tandem::apps
