#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::engine {

/// Alignment of every buffer, block and workspace, in bytes.
inline constexpr std::int64_t kAlignment = 64;
inline std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Returns 64-byte aligned memory, in debug builds filled with a NaN pattern. Throws Error naming the size
/// and what is free if there is not enough memory.
std::shared_ptr<std::byte> allocate(std::int64_t bytes);

/// Memory that several processes take from: a machine's, swap included, or what a control group allows
/// (Linux).
struct MemoryPool {
  std::uint64_t id = 0;   ///< the same in all processes that take from it, and in no others
  std::int64_t free = 0;  ///< bytes that can still be taken before a process is killed
};
/// Returns the pools of this process: its machine's, one for each of its control groups that has a limit, and
/// its own, if its address space has one (ulimit -v). Without /proc, there are none.
std::vector<MemoryPool> memory_pools();

/// Returns how many bytes this process can still use without being killed: the least of what its pools have
/// free, or the largest number if there are none.
std::int64_t free_memory();

/// Throws Error, which says both numbers, if `what` (a plural) takes more bytes than are free.
void require_memory(const std::string& what, double bytes);

/// Fills memory with a pattern that is NaN in every floating dtype.
void poison(void* data, std::int64_t bytes);

/// Memory of a fixed size, shared by all copies of the Buffer.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes) : bytes_(bytes), data_(bytes > 0 ? allocate(bytes) : nullptr) {}
  std::byte* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
  std::shared_ptr<std::byte> data_;
};

}  // namespace tandem::engine
