#pragma once
#include <atomic>
#include <cstdint>
#include <limits>

namespace tandem::engine {

/// A counter that threads wait for. A waiting thread spins for about two microseconds, then sleeps in the
/// kernel until the counter reaches its target; smaller values do not wake it.
class alignas(64) Progress {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_acquire); }

  void advance_to(std::uint64_t value) {
    value_.store(value, std::memory_order_seq_cst);  // before the load of wanted_: a sleeper is not missed
    if (value >= wanted_.load(std::memory_order_seq_cst)) wake();
  }

  /// Returns when the counter has reached `target`, or `stop` is set and `wake` called.
  void wait_for(std::uint64_t target, const std::atomic<bool>& stop) const {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (value() >= target || stop.load(std::memory_order_relaxed)) return;
      pause();
    }
    for (;;) {
      const std::uint32_t seen = wakes_.load(std::memory_order_seq_cst);
      std::uint64_t wanted = wanted_.load(std::memory_order_seq_cst);
      while (target < wanted && !wanted_.compare_exchange_weak(wanted, target, std::memory_order_seq_cst)) {
      }
      if (value_.load(std::memory_order_seq_cst) >= target || stop.load(std::memory_order_seq_cst)) return;
      wakes_.wait(seen, std::memory_order_seq_cst);
    }
  }

  /// Wakes all waiters; each rechecks its condition.
  void wake() const {
    wanted_.store(kNoTarget,
                  std::memory_order_seq_cst);  // before wakes_: a waiter that comes in between does not sleep
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    wakes_.notify_all();
  }

 private:
  static constexpr std::uint64_t kNoTarget = std::numeric_limits<std::uint64_t>::max();
  static constexpr int kSpins = 40;
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  std::atomic<std::uint64_t> value_{0};
  mutable std::atomic<std::uint64_t> wanted_{kNoTarget};  // the smallest target of a sleeper
  mutable std::atomic<std::uint32_t> wakes_{0};
};

}  // namespace tandem::engine
