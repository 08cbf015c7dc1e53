#pragma once
#include <chrono>
#include <cstdint>
#include <limits>

#include <tandem/dist/doorbell.h>

namespace tandem::engine {

/// Polls `done` for 30 µs, so that threads that arrive at about the same time meet without sleeping: on a
/// busy core a woken thread must wait for its turn. Returns true if `done` became true.
template <class Done> bool poll_briefly(Done done) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(30);
  while (!done())
    if (std::chrono::steady_clock::now() >= until) return false;
  return true;
}

/// Paces a loop that polls for progress: at first it polls, then it sleeps, longer and longer, until the bell
/// rings. If all peers ring the bell, the sleeps grow fast. If some cannot (on other machines), the sleeps
/// stay short, which keeps the latency low for a few percent of a core.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  Backoff(Doorbell& bell, bool all_ring) : bell_(bell), all_ring_(all_ring), start_(Clock::now()) {}
  /// Call before each poll.
  void look() { seen_ = bell_.rings(); }
  /// Call after a poll that found nothing. Returns at once in the first 20 µs, and sleeps after that, but not
  /// beyond `due`, in seconds of steady_clock: when the next poll will find something.
  void pause(double due = std::numeric_limits<double>::infinity());
  /// Call after a poll that found something.
  void reset() { start_ = Clock::now(); }
  /// Returns true once the wait is long enough for checks that cost more than a poll.
  bool long_wait() const { return long_wait_; }

 private:
  Doorbell& bell_;
  const bool all_ring_;
  Clock::time_point start_;
  std::uint32_t seen_ = 0;
  int extra_looks_ = 0;
  bool long_wait_ = false;
};

}  // namespace tandem::engine
