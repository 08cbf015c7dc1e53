#pragma once
#include <array>
#include <cstdint>

#include <tandem/core/base/rng.h>

namespace tandem::engine {

// All code that draws random numbers uses these functions. They turn key, sample and element into random
// bits, and are inline so that loops over many counters vectorize.

/// One of Philox's rounds, with this round's key. A word is the lower 32 bits of a Word; the bits above do
/// not matter, and are not kept at 0.
template <class Word>
[[gnu::always_inline]] inline std::array<Word, 4> philox_round(const std::array<Word, 4>& c,
                                                               const std::array<std::uint32_t, 2>& k) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * static_cast<std::uint32_t>(c[0]);
  const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * static_cast<std::uint32_t>(c[2]);
  return {static_cast<Word>(p1 >> 32) ^ c[1] ^ k[0], static_cast<Word>(p1),
          static_cast<Word>(p0 >> 32) ^ c[3] ^ k[1], static_cast<Word>(p0)};
}
inline constexpr int kPhiloxRounds = 10;
[[gnu::always_inline]] inline std::array<std::uint32_t, 2> next_philox_key(std::array<std::uint32_t, 2> k) {
  return {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
}

/// Philox4x32-10 (Salmon et al., SC'11): four 32-bit words as a pure function of counter and key.
[[gnu::always_inline]] inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c,
                                                                  std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < kPhiloxRounds; ++round, k = next_philox_key(k)) c = philox_round(c, k);
  return c;
}

/// Returns Philox's key. It mixes seed, rng_id and the upper half of the batch number, so that all 64 bits of
/// the batch number count.
inline std::array<std::uint32_t, 2> philox_key(const RngKey& key) {
  const std::uint64_t mixed = key.seed * 0x9E3779B97F4A7C15ull ^ key.rng_id ^ (key.batch >> 32 << 17);
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

/// Returns the counter of quad `quad` (elements 4·quad … 4·quad+3) of `sample`; it also holds the batch.
inline std::array<std::uint32_t, 4> philox_counter(const RngKey& key, std::uint64_t sample,
                                                   std::uint64_t quad) {
  return {static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(sample),
          static_cast<std::uint32_t>(key.batch),
          static_cast<std::uint32_t>(sample >> 32) ^ static_cast<std::uint32_t>(quad >> 32) * 0x85EBCA6Bu};
}

/// Returns a word's upper 24 bits as a float in [0, 1).
inline float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace tandem::engine
