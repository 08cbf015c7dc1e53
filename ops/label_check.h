#pragma once
#include <cstdint>

namespace tandem::engine {

/// Throws Error naming the first label outside 0 … classes−1.
void check_labels(const std::int32_t* labels, std::int64_t samples, std::int64_t classes);

}  // namespace tandem::engine
