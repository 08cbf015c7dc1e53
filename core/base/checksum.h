#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/base/input_file.h>

namespace tandem::engine {

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

/// Of all bytes of a file. Throws what reading it throws.
std::string checksum_of(const InputFile& file);
std::string checksum_of(std::string_view text);

/// CRC-32C (Castagnoli polynomial) of some bytes, which other programs' formats ask for.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace tandem::engine
