#include <tandem/ops/cpu/uniforms.h>

#include <algorithm>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/philox.h>

namespace tandem::engine {

// Words lie in 64 bits each, as their products do: so rounds need not pack and unpack them, which takes twice
// as long.
TANDEM_CLONES void uniforms(const RngKey& key, std::uint64_t first_sample, std::int64_t quads,
                            std::int64_t first, float* draws) {
  std::uint64_t words[4][kQuads];
  std::uint64_t sample = first_sample + static_cast<std::uint64_t>(first / quads);
  std::int64_t quad = first % quads;
  for (std::int64_t i = 0; i < kQuads;) {  // a row after the other
    const std::int64_t end = std::min(kQuads, i + quads - quad);
    for (; i < end; ++i, ++quad) {
      const auto counter = philox_counter(key, sample, static_cast<std::uint64_t>(quad));
      for (std::size_t w = 0; w < 4; ++w) words[w][i] = counter[w];
    }
    quad = 0;
    ++sample;
  }
  auto k = philox_key(key);
  for (int round = 0; round < kPhiloxRounds; ++round, k = next_philox_key(k))
    for (std::int64_t i = 0; i < kQuads; ++i) {
      const auto c = philox_round<std::uint64_t>({words[0][i], words[1][i], words[2][i], words[3][i]}, k);
      for (std::size_t w = 0; w < 4; ++w) words[w][i] = c[w];
    }
  for (std::int64_t i = 0; i < kQuads; ++i)
    for (std::size_t w = 0; w < 4; ++w)
      draws[4 * i + static_cast<std::int64_t>(w)] = to_unit(static_cast<std::uint32_t>(words[w][i]));
}

}  // namespace tandem::engine
