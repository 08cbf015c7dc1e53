#include <tandem/core/base/checksum.h>

#define XXH_INLINE_ALL  // the header alone: nothing to link
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include <fmt/format.h>

namespace tandem::engine {
namespace {
XXH3_state_t* as_state(const std::shared_ptr<void>& state) { return static_cast<XXH3_state_t*>(state.get()); }

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit)
      table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? 0x82f63b78u : 0u);  // reflected
  }
  return table;
}
}  // namespace

Checksum::Checksum()
    : state_(XXH3_createState(), [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(as_state(state_));
}

void Checksum::update(std::span<const std::byte> data) {
  XXH3_64bits_update(as_state(state_), data.data(), data.size());
}

std::string Checksum::hex() const { return fmt::format("{:016x}", XXH3_64bits_digest(as_state(state_))); }

std::string checksum_of(const InputFile& file) {
  Checksum sum;
  std::vector<std::byte> piece(1 << 20);
  for (std::int64_t at = 0; at < file.size(); at += std::ssize(piece)) {
    const auto bytes = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(piece), file.size() - at));
    const auto part = std::span(piece).first(bytes);
    file.read(at, part);
    sum.update(part);
  }
  return sum.hex();
}

std::string checksum_of(std::string_view text) {
  Checksum sum;
  sum.update(std::as_bytes(std::span(text)));
  return sum.hex();
}

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

}  // namespace tandem::engine
