#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tandem::engine {

/// Alignment of every buffer, block and workspace, in bytes.
inline constexpr std::int64_t kAlignment = 64;
inline std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Returns 64-byte aligned memory, in debug builds filled with a NaN pattern. Throws Error naming the size
/// and what is free if there is not enough memory.
std::shared_ptr<std::byte> allocate(std::int64_t bytes);

/// Returns how many bytes this process can still use without being killed: what the machine has available,
/// swap included, or less if its control group allows less (Linux). Without /proc: the largest number.
std::int64_t free_memory();

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
