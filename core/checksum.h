#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tandem {

/// The checksum XXH3 of 64 bits (xxhash.com) of bytes that come piece after piece. It finds damage, not
/// malice.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> data);
  /// 16 hexadecimal digits, of all bytes so far; as `xxhsum -H3` prints them.
  std::string hex() const;

 private:
  std::shared_ptr<void> state_;  // the library's, kept out of this header
};

}  // namespace tandem
