#include <tandem/core/base/convert.h>

#include <cmath>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/error.h>

namespace tandem::engine {

TANDEM_CLONES void bf16_to_floats(const std::uint16_t* from, float* to, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = bf16_to_float(from[i]);
}

TANDEM_CLONES void floats_to_bf16(const float* from, std::uint16_t* to, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) to[i] = float_to_bf16(from[i]);
}
namespace {
template <class T> T at(const void* data, std::int64_t i) { return static_cast<const T*>(data)[i]; }
template <class T> void put(void* data, std::int64_t i, double v) {
  static_cast<T*>(data)[i] = static_cast<T>(v);
}

// IEEE binary16, subnormals included.
double f16_to_double(std::uint16_t h) {
  const double sign = h & 0x8000u ? -1 : 1;
  const int exponent = h >> 10 & 31;
  const int mantissa = h & 1023;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}
std::uint16_t double_to_f16(double v) {
  const std::uint16_t sign = std::signbit(v) ? 0x8000u : 0;
  const double a = std::fabs(v);
  if (std::isnan(v)) return 0x7e00u;
  if (a >= 65520.0) return sign | 0x7c00u;
  if (a < 0x1p-14) return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(a, 24)));
  const int exponent = std::ilogb(a);
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(a, 10 - exponent)));  // 1024 … 2048
  return static_cast<std::uint16_t>(sign + ((exponent + 14) << 10) + mantissa);
}
}  // namespace

double load_element(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::f32: return at<float>(data, i);
    case DType::f64: return at<double>(data, i);
    case DType::bf16: return bf16_to_float(at<std::uint16_t>(data, i));
    case DType::f16: return f16_to_double(at<std::uint16_t>(data, i));
    case DType::i32: return at<std::int32_t>(data, i);
    case DType::i64: return static_cast<double>(at<std::int64_t>(data, i));
    case DType::u8:
    case DType::b8: return at<std::uint8_t>(data, i);
  }
  throw Error("load_element: unknown dtype");
}

void store_element(DType dtype, void* data, std::int64_t i, double v) {
  switch (dtype) {
    case DType::f32: return put<float>(data, i, v);
    case DType::f64: return put<double>(data, i, v);
    case DType::bf16: static_cast<std::uint16_t*>(data)[i] = float_to_bf16(static_cast<float>(v)); return;
    case DType::f16: static_cast<std::uint16_t*>(data)[i] = double_to_f16(v); return;
    case DType::i32: return put<std::int32_t>(data, i, v);
    case DType::i64: return put<std::int64_t>(data, i, v);
    case DType::u8: return put<std::uint8_t>(data, i, v);
    case DType::b8: static_cast<std::uint8_t*>(data)[i] = v != 0; return;
  }
}

}  // namespace tandem::engine
