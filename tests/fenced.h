#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tandem::test {

/// Memory with guard bytes on both sides.
class Fenced {
 public:
  Fenced(std::int64_t bytes, unsigned char fill);
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool intact() const;

 private:
  std::int64_t bytes_;
  std::shared_ptr<std::byte> memory_;
  std::byte* data_;
};

}  // namespace tandem::test
