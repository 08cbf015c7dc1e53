#include <tandem/ops/cpu/uniforms.h>

#include <tandem/ops/cpu/clones.h>

namespace tandem {
namespace {

constexpr std::int64_t kLanes = 16;

// Philox4x32-10 on kLanes counters c[word][lane] under one key.
TANDEM_CLONES void philox_lanes(std::uint32_t (*c)[kQuads], std::uint32_t k0, std::uint32_t k1) {
  for (std::int64_t first = 0; first < kQuads; first += kLanes) {
    std::uint32_t a[kLanes], b[kLanes], d[kLanes], e[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i)
      a[i] = c[0][first + i], b[i] = c[1][first + i], d[i] = c[2][first + i], e[i] = c[3][first + i];
    std::uint32_t key0 = k0, key1 = k1;
    for (int round = 0; round < 10; ++round) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * a[i], p1 = std::uint64_t{0xCD9E8D57u} * d[i];
        a[i] = static_cast<std::uint32_t>(p1 >> 32) ^ b[i] ^ key0;
        b[i] = static_cast<std::uint32_t>(p1);
        d[i] = static_cast<std::uint32_t>(p0 >> 32) ^ e[i] ^ key1;
        e[i] = static_cast<std::uint32_t>(p0);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    for (std::int64_t i = 0; i < kLanes; ++i)
      c[0][first + i] = a[i], c[1][first + i] = b[i], c[2][first + i] = d[i], c[3][first + i] = e[i];
  }
}

}  // namespace

// Counter and key are laid out as in core/rng.cpp.
void uniforms(const RngKey& key, std::uint64_t first_sample, std::int64_t quads, std::int64_t first,
              float* draws) {
  std::uint32_t c[4][kQuads];
  std::uint64_t sample = first_sample + static_cast<std::uint64_t>(first / quads);
  auto quad = static_cast<std::uint64_t>(first % quads);
  for (std::int64_t i = 0; i < kQuads; ++i) {
    c[0][i] = static_cast<std::uint32_t>(quad);
    c[1][i] = static_cast<std::uint32_t>(sample);
    c[2][i] = static_cast<std::uint32_t>(key.batch);
    c[3][i] = static_cast<std::uint32_t>(sample >> 32) ^ static_cast<std::uint32_t>(quad >> 32) * 0x85EBCA6Bu;
    if (++quad == static_cast<std::uint64_t>(quads)) {
      quad = 0;
      ++sample;
    }
  }
  const std::uint64_t mixed = key.seed * 0x9E3779B97F4A7C15ull ^ key.rng_id ^ (key.batch >> 32 << 17);
  philox_lanes(c, static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32));
  for (std::int64_t i = 0; i < kQuads; ++i)
    for (std::int64_t w = 0; w < 4; ++w) draws[4 * i + w] = static_cast<float>(c[w][i] >> 8) * 0x1p-24f;
}

}  // namespace tandem
