#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tandem::engine {

/// Wakes threads that would otherwise poll, also in other processes: it is a plain object in shared memory.
/// A ring only means "look again". A ring between the look and the sleep is not lost, because a sleeper
/// passes the ring count that it read before it looked.
class Doorbell {
 public:
  std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }
  void ring();
  /// Sleeps until the count differs from `seen`, but no longer than `limit`.
  void wait(std::uint32_t seen, std::chrono::nanoseconds limit);

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace tandem::engine
