#pragma once
#include <cstdint>

#include <tandem/core/graph/tensor.h>

namespace tandem::testing {

/// Numbers from −1 to 1 that look random, as tests/golden/make_originals.py makes them: element i.
inline double pattern(std::int64_t i, std::int64_t seed) {
  constexpr std::int64_t kRange = std::int64_t{1} << 31;
  std::int64_t x = (i + 1) * (2 * seed + 40'503) % kRange;
  x = (x ^ (x >> 15)) * 48'271 % kRange;
  return static_cast<double>(x ^ (x >> 13)) / (kRange / 2) - 1;
}

/// Returns the sum of the products of a Tensor's elements with a pattern: unlike a norm, it shows whether
/// elements are where they should be.
inline double product_with_pattern(const Tensor& t) {
  constexpr std::int64_t kSeed = 7;
  double sum = 0;
  std::int64_t i = 0;
  for (const double x : t.values()) sum += x * pattern(i++, kSeed);
  return sum;
}

}  // namespace tandem::testing
