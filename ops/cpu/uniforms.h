#pragma once
#include <cstdint>

#include <tandem/core/base/rng.h>

namespace tandem::engine {

/// Quads of draws that `uniforms` makes in one go.
inline constexpr std::int64_t kQuads = 64;

/// Many draws of `uniform4` side by side, bit for bit. Counting quads through the rows of a batch, `quads` a
/// row: draws[4·i …] is quad (first + i) % quads of sample first_sample + (first + i) / quads, for i <
/// kQuads.
void uniforms(const RngKey& key, std::uint64_t first_sample, std::int64_t quads, std::int64_t first,
              float* draws);

}  // namespace tandem::engine
