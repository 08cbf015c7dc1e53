#pragma once
#include <cstdint>

#include <fmt/format.h>

#include <tandem/core/error.h>

namespace tandem {

/// Throws Error naming the first label outside 0 … classes−1.
inline void check_labels(const std::int32_t* labels, std::int64_t samples, std::int64_t classes) {
  for (std::int64_t i = 0; i < samples; ++i)
    if (labels[i] < 0 || labels[i] >= classes)
      throw Error(fmt::format("cross_entropy: the label of sample {} is {}, outside the {} classes", i, labels[i], classes));
}

}  // namespace tandem
