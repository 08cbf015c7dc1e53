#include <tandem/ops/cpu/uniforms.h>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/philox.h>

namespace tandem::engine {
namespace {

// Replaces every counter words[…][i] by its Philox output.
TANDEM_CLONES void philox_all(std::uint32_t (*words)[kQuads], std::array<std::uint32_t, 2> key) {
  for (std::int64_t i = 0; i < kQuads; ++i) {
    const auto drawn = philox({words[0][i], words[1][i], words[2][i], words[3][i]}, key);
    for (std::size_t w = 0; w < 4; ++w) words[w][i] = drawn[w];
  }
}

}  // namespace

void uniforms(const RngKey& key, std::uint64_t first_sample, std::int64_t quads, std::int64_t first,
              float* draws) {
  std::uint32_t words[4][kQuads];
  std::uint64_t sample = first_sample + static_cast<std::uint64_t>(first / quads);
  auto quad = static_cast<std::uint64_t>(first % quads);
  for (std::int64_t i = 0; i < kQuads; ++i) {
    const auto counter = philox_counter(key, sample, quad);
    for (std::size_t w = 0; w < 4; ++w) words[w][i] = counter[w];
    if (++quad == static_cast<std::uint64_t>(quads)) {
      quad = 0;
      ++sample;
    }
  }
  philox_all(words, philox_key(key));
  for (std::int64_t i = 0; i < kQuads; ++i)
    for (std::size_t w = 0; w < 4; ++w) draws[4 * i + static_cast<std::int64_t>(w)] = to_unit(words[w][i]);
}

}  // namespace tandem::engine
