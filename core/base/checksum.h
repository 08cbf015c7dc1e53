#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/base/input_file.h>

namespace tandem::engine {

/// Computes the 64-bit XXH3 checksum (xxhash.com) of bytes that are given in pieces. It detects accidental
/// damage, not deliberate changes.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> data);
  /// Returns the checksum of all bytes so far: 16 hexadecimal digits, as `xxhsum -H3` prints them.
  std::string hex() const;

 private:
  std::shared_ptr<void> state_;  // an XXH3_state_t, kept out of this header
};

/// Returns the checksum of a file or a text, as Checksum::hex. Throws what `InputFile::read` throws.
std::string checksum_of(const InputFile& file);
std::string checksum_of(std::string_view text);

/// Returns the CRC-32C (Castagnoli polynomial) of `bytes`, which file formats of other programs require.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace tandem::engine
