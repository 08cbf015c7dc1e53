#include <tandem/core/rng.h>

#include <cmath>
#include <numbers>

namespace tandem {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

namespace {
// The 64-bit key carries seed and rng_id; the counter carries sample, quad and batch. The batch is mixed
// into the key's words too, so that all 64 of its bits count.
std::array<std::uint32_t, 4> words(const RngKey& key, std::uint64_t sample, std::uint64_t quad) {
  const std::uint64_t mixed = key.seed * 0x9E3779B97F4A7C15ull ^ key.rng_id ^ (key.batch >> 32 << 17);
  return philox(
      {static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(sample),
       static_cast<std::uint32_t>(key.batch),
       static_cast<std::uint32_t>(sample >> 32) ^ static_cast<std::uint32_t>(quad >> 32) * 0x85EBCA6Bu},
      {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)});
}
float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
}  // namespace

std::array<float, 4> uniform4(const RngKey& key, std::uint64_t sample, std::uint64_t quad) {
  const auto w = words(key, sample, quad);
  return {to_unit(w[0]), to_unit(w[1]), to_unit(w[2]), to_unit(w[3])};
}

float uniform(const RngKey& key, std::uint64_t sample, std::uint64_t element) {
  return to_unit(words(key, sample, element / 4)[element % 4]);
}

double normal(const RngKey& key, std::uint64_t sample, std::uint64_t element) {
  const auto w = words(key, sample, element / 2);
  const std::size_t pair = element % 2 * 2;
  const double u1 = (w[pair] + 0.5) * 0x1p-32;  // in (0, 1): the logarithm is finite
  const double u2 = w[pair + 1] * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis) {
  for (unsigned char byte : bytes) basis = (basis ^ byte) * 0x100000001b3ull;
  return basis;
}

}  // namespace tandem
