#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace tandem::engine {

/// Transcendental functions of float without branches or tables, so that loops over them vectorize. They
/// consist of products, sums and selects, so every instruction set gives the same bits. Errors are at most
/// 2 units in the last place (pointwise_test); NaN and infinities are as in <cmath>. The polynomials are
/// minimax fits (Chebyshev) on the given ranges.
struct VectorMath {
  [[gnu::always_inline]] static inline float exp(float x) {
    x = x > 89.0f ? 89.0f : x;      // gives infinity
    x = x < -104.0f ? -104.0f : x;  // gives 0
    const Power power = power_of_e(x);
    // 2ⁿ in two factors, because n can exceed the exponents of normal floats.
    const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(power.n) >> 1);
    return (power.above_one + 1.0f) * power_of_two(half) * power_of_two(power.n - half);
  }

  /// exp(x) − 1 for x ≤ 0.
  [[gnu::always_inline]] static inline float expm1(float x) {
    x = x < -50.0f ? -50.0f : x;  // gives −1
    const Power power = power_of_e(x);
    const float two_to_n = power_of_two(power.n);
    return power.above_one * two_to_n + (two_to_n - 1.0f);
  }

  [[gnu::always_inline]] static inline float log(float x) {
    const bool tiny = x < std::numeric_limits<float>::min();
    const float scaled = tiny ? x * 0x1p23f : x;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
    const std::int32_t exponent =
        static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;  // mantissa in [√½, √2)
    const float f = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23)) - 1.0f;
    const float e = static_cast<float>(exponent) - (tiny ? 23.0f : 0.0f);
    const float p =
        polynomial(f, 0x1.1d8ea6p-4f, -0x1.d635bcp-4f, 0x1.dea282p-4f, -0x1.fcf4c6p-4f, 0x1.23d21ap-3f,
                   -0x1.555b4ap-3f, 0x1.999d5ap-3f, -0x1.fffffcp-3f, 0x1.555554p-2f);
    const float square = f * f;
    const float y = (f * square * p + e * -0x1.bd0106p-13f) - 0.5f * square;
    const float value = (f + y) + e * 0x1.63p-1f;
    const float special =
        x == 0.0f ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    const float of_large = x > std::numeric_limits<float>::max() ? x : value;
    return x > 0.0f ? of_large : special;
  }

  [[gnu::always_inline]] static inline float tanh(float x) {
    const float a = std::fabs(x), z = x * x;
    const float p = polynomial(z, -0x1.8c2d0ap-8f, 0x1.576e30p-6f, -0x1.b91582p-5f, 0x1.110dd8p-3f,
                               -0x1.555552p-2f);  // |x| < 0.63
    const float small = p * z * x + x;
    const float large = std::copysign(1.0f - 2.0f / (exp(a + a) + 1.0f), x);
    return a < 0.625f ? small : large;
  }

  [[gnu::always_inline]] static inline float erf(float x) {
    const float a = std::fabs(x), z = x * x;
    const float p = polynomial(z, 0x1.5d955cp-14f, -0x1.aa7e38p-11f, 0x1.54cfb6p-8f, -0x1.b80f72p-6f,
                               0x1.ce2e14p-4f, -0x1.812744p-2f, 0x1.06eba8p-3f);  // |x| < 0.93
    const float small = p * x + x;
    const float t = a > 4.0f ? 4.0f : a;  // erf(4) rounds to 1
    const float q =
        polynomial(t, -0x1.18cd16p-20f, 0x1.2078c2p-15f, -0x1.058728p-11f, 0x1.1a0d9ap-8f, -0x1.9be2eap-6f,
                   0x1.b9c6d6p-4f, 0x1.44af12p-1f, 0x1.07fe30p-3f);  // −log(1 − erf t) = t + t·q(t)
    const float large = std::copysign(1.0f - exp(-(q * t + t)), x);
    return a < 0.92f ? small : large;
  }

  /// log(1 + u) for 0 ≤ u ≤ 1. Adds the rounding error of 1 + u, times the derivative, to the logarithm.
  [[gnu::always_inline]] static inline float log1p(float u) {
    const float w = 1.0f + u;
    return log(w) + (u - (w - 1.0f)) / w;
  }

  /// xᵉ, computed in double to keep the bits that the product e·log x would lose in float.
  [[gnu::always_inline]] static inline float pow(float x, float e) {
    const float a = std::fabs(x);
    float y = static_cast<float>(exp(static_cast<double>(e) * log(static_cast<double>(a))));
    y = a == 1.0f && e == e ? 1.0f : y;
    const float half = 0.5f * e;
    const bool integer = std::floor(e) == e, odd = integer & (std::floor(half) != half);
    y = odd ? std::copysign(y, x) : y;
    y = (!integer & (x < 0.0f) & (a <= std::numeric_limits<float>::max()))
            ? std::numeric_limits<float>::quiet_NaN()
            : y;
    return ((e == 0.0f) | (x == 1.0f)) ? 1.0f : y;
  }

 private:
  // Returns the value at x of the polynomial with these coefficients, from the highest power to the constant.
  template <class T, class... Others>
  [[gnu::always_inline]] static inline T polynomial(T x, T first, Others... others) {
    T value = first;
    ((value = value * x + others), ...);
    return value;
  }

  // Natural logarithm in double, with a relative error of about 2⁻⁴⁰, for `pow`. x is a float ≥ 0 or NaN.
  [[gnu::always_inline]] static inline double log(double x) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t shifted = bits - 0x3fe6a09e00000000u;  // mantissa in [√½, √2)
    const std::uint64_t mantissa = (shifted & 0x000fffffffffffffu) + 0x3fe6a09e00000000u;
    // The exponent plus 2¹¹, which makes it positive, in the low bits of a double.
    const std::uint64_t biased = (shifted + (std::uint64_t{1} << 63)) >> 52;
    const double exponent = std::bit_cast<double>(biased | 0x4330000000000000u) - (0x1p52 + 2048);
    const double m = std::bit_cast<double>(mantissa);
    const double s = (m - 1) / (m + 1), z = s * s;  // log m = 2·atanh s, |s| < 0.172
    const double p =
        polynomial(z, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
    const double value = exponent * std::numbers::ln2 + 2 * (s + s * z * p);
    const double special = x == 0 ? -std::numeric_limits<double>::infinity() : x;  // infinity, NaN
    return ((x > 0) & (x <= std::numeric_limits<double>::max())) ? value : special;
  }

  [[gnu::always_inline]] static inline double exp(double x) {
    constexpr double kMagic = 0x1.8p52;
    x = x > 100 ? 100 : x;    // infinity as float
    x = x < -120 ? -120 : x;  // 0 as float
    const double shifted = x * std::numbers::log2e + kMagic;
    const double r = x - (shifted - kMagic) * std::numbers::ln2;
    const double p = polynomial(r, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                                1.0 / 6, 0.5, 1.0, 1.0);  // the exponential series, |r| ≤ log(2)/2
    const std::uint64_t n = std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kMagic);
    return p * std::bit_cast<double>((n + 1023) << 52);
  }

  // eˣ = 2ⁿ·(1 + above_one) for −104 ≤ x ≤ 89; n is in two's complement.
  struct Power {
    std::uint32_t n;
    float above_one;
  };
  [[gnu::always_inline]] static inline Power power_of_e(float x) {
    constexpr float kMagic = 0x1.8p23f;  // adding it rounds to an integer, in the low bits of the sum
    const float shifted = x * 0x1.715476p0f + kMagic;
    const float n = shifted - kMagic;  // x = n·log 2 + r, |r| ≤ log(2)/2
    const float r =
        (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;  // log 2 in two parts: n times the first is exact
    const float p = polynomial(r, 0x1.6d1606p-10f, 0x1.12106cp-7f, 0x1.555516p-5f, 0x1.5554d8p-3f, 0x1p-1f);
    return {std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kMagic), p * (r * r) + r};
  }

  [[gnu::always_inline]] static inline float power_of_two(std::uint32_t n) {
    return std::bit_cast<float>((n + 127u) << 23);
  }
};

}  // namespace tandem::engine
