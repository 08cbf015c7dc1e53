#pragma once
#include <cstdint>
#include <optional>

namespace tandem::engine {

/// Returns how many samples do not have the label `ignored`. Throws Error naming the first other label
/// outside 0 … classes−1.
std::int64_t count_labels(const std::int32_t* labels, std::int64_t samples, std::int64_t classes,
                          std::optional<std::int32_t> ignored);

}  // namespace tandem::engine
