#pragma once
#include <cstdint>

#include <tandem/core/base/rng.h>

namespace tandem::engine {

/// The number of quads that one call of `uniforms` draws.
inline constexpr std::int64_t kQuads = 64;

/// Makes kQuads calls of `uniform4` at once, with identical bits. Quads are counted through the rows of a
/// batch, `quads` per row: for i < kQuads, draws[4·i … 4·i+3] is quad (first + i) % quads of sample
/// first_sample + (first + i) / quads.
void uniforms(const RngKey& key, std::uint64_t first_sample, std::int64_t quads, std::int64_t first,
              float* draws);

}  // namespace tandem::engine
