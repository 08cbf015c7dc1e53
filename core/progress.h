#pragma once
#include <atomic>
#include <cstdint>

namespace tandem {

/// A counter that others wait for. Waiting spins for about two microseconds, then sleeps in the kernel.
class Progress {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_acquire); }

  void advance_to(std::uint64_t value) {
    value_.store(value, std::memory_order_seq_cst);  // before the load of sleepers_: a sleeper is not missed
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

  /// Returns when the counter has reached `target`, or `stop` is set and `wake` called.
  void wait_for(std::uint64_t target, const std::atomic<bool>& stop) const {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (value() >= target || stop.load(std::memory_order_relaxed)) return;
      pause();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const std::uint32_t seen = wakes_.load(std::memory_order_seq_cst);
      if (value_.load(std::memory_order_seq_cst) >= target || stop.load(std::memory_order_seq_cst)) break;
      wakes_.wait(seen, std::memory_order_seq_cst);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  void wake() const {
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    wakes_.notify_all();
  }

 private:
  static constexpr int kSpins = 40;
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  std::atomic<std::uint64_t> value_{0};
  mutable std::atomic<std::uint32_t> sleepers_{0};
  mutable std::atomic<std::uint32_t> wakes_{0};
};

}  // namespace tandem
