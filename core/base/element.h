#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/types.h>

namespace tandem::engine {

/// 16-bit floats as stored in memory. Kernels that are templates on the element type load and store them as
/// float.
struct BFloat16 {
  std::uint16_t bits;
  BFloat16() = default;
  BFloat16(float value) : bits(float_to_bf16(value)) {}
  operator float() const { return bf16_to_float(bits); }
};
struct Float16 {
  std::uint16_t bits;
  Float16() = default;
  Float16(float value) { store_element(DType::f16, &bits, 0, value); }
  operator float() const { return static_cast<float>(load_element(DType::f16, &bits, 0)); }
};
struct Bool8 {
  std::uint8_t value;
  operator float() const { return value; }
};

/// Converts `value` to `To`: floats round to nearest; floats that become integers truncate towards zero and
/// saturate (NaN gives 0); booleans are "not zero".
template <class To, class From> inline To convert_element(From value) {
  if constexpr (std::is_same_v<To, Bool8>) {
    return {static_cast<std::uint8_t>(value != 0)};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr auto low = std::numeric_limits<To>::lowest(), high = std::numeric_limits<To>::max();
    if (!(value > static_cast<From>(low))) return std::isnan(value) ? To{0} : low;
    return value >= static_cast<From>(high) ? high : static_cast<To>(value);
  } else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

/// Returns whether all elements of the array at `data` are finite. True for types that are not floating.
bool all_finite(const TensorType& type, const void* data);

/// Calls `f` with a zero of the C++ type that stores `dtype`.
template <class F> decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(BFloat16{});
    case DType::f16: return f(Float16{});
    case DType::f64: return f(double{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::b8: return f(Bool8{});
  }
  throw Error("unknown dtype");
}

/// Does `T` store elements of `dtype`?
template <class T> bool stores(DType dtype) {
  return visit_dtype(dtype, [](auto zero) { return std::is_same_v<decltype(zero), T>; });
}

}  // namespace tandem::engine
