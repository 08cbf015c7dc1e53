#pragma once
#include <bit>
#include <cstdint>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// bfloat16 is the upper half of a float; rounding is to nearest, ties to even.
inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, nan = bits >> 16 | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);  // no branch
}

/// Convert `n` elements; each array has `n` elements.
void bf16_to_floats(const std::uint16_t* from, float* to, std::int64_t n);
void floats_to_bf16(const float* from, std::uint16_t* to, std::int64_t n);

/// Load or store element `index` of an array of any dtype, as double. One element per call: for tests, setup
/// and printing.
double load_element(DType dtype, const void* data, std::int64_t index);
void store_element(DType dtype, void* data, std::int64_t index, double value);

}  // namespace tandem::engine
