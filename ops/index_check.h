#pragma once
#include <cstdint>

namespace tandem::engine {

/// Throws Error naming the first index outside 0 … extent−1.
void check_indices(const std::int32_t* indices, std::int64_t count, std::int64_t extent);

}  // namespace tandem::engine
