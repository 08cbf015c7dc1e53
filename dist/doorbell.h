#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tandem::engine {

/// Wakes threads that would otherwise poll, also across processes: a plain object in memory that they share.
/// A ring says "look again", no more; one that comes between look and sleep is not lost, because a sleeper
/// names the ring count it read before it looked.
class Doorbell {
 public:
  std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }
  void ring();
  /// Sleeps until the count differs from `seen`, at most for `limit`.
  void wait(std::uint32_t seen, std::chrono::nanoseconds limit);

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace tandem::engine
