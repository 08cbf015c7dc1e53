#pragma once
#include <cmath>
#include <numbers>
#include <type_traits>
#include <utility>

#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// The transcendental functions of the reference kernels, taken from the standard library.
struct StandardMath {
  template <class T> static T exp(T x) { return std::exp(x); }
  template <class T> static T log(T x) { return std::log(x); }
  template <class T> static T tanh(T x) { return std::tanh(x); }
  template <class T> static T erf(T x) { return std::erf(x); }
  template <class T> static T log1p(T x) { return std::log1p(x); }
  template <class T> static T expm1(T x) { return std::expm1(x); }
  template <class T> static T pow(T x, T e) { return std::pow(x, e); }
};

/// Computes one term for one element. All CPU kernels share it; they differ only in `Math`, the
/// transcendental functions. It has no branches, so that loops over it vectorize.
template <PointwiseCode code, class Math, class T>
[[gnu::always_inline]] inline T pointwise_element(T a, T b, T c) {
  using enum PointwiseCode;
  if constexpr (code == neg) return -a;
  if constexpr (code == exp) return Math::exp(a);
  if constexpr (code == log) return Math::log(a);
  if constexpr (code == tanh) return Math::tanh(a);
  if constexpr (code == sqrt) return std::sqrt(a);
  if constexpr (code == rsqrt) return T(1) / std::sqrt(a);
  if constexpr (code == sigmoid) return T(1) / (T(1) + Math::exp(-a));
  if constexpr (code == erf) return Math::erf(a);
  if constexpr (code == abs) return std::fabs(a);
  if constexpr (code == relu) return a <= T(0) ? T(0) : a;  // −0 gives 0: see plan/pool_first.h
  if constexpr (code == gelu)
    return T(0.5) * a * (T(1) + Math::erf(a * static_cast<T>(1 / std::numbers::sqrt2)));
  if constexpr (code == softplus) return (a < T(0) ? T(0) : a) + Math::log1p(Math::exp(-std::fabs(a)));
  if constexpr (code == elu) return a > T(0) ? a : Math::expm1(a > T(0) ? T(0) : a);
  if constexpr (code == selu)
    return a > T(0) ? a * static_cast<T>(kSeluScale)
                    : Math::expm1(a > T(0) ? T(0) : a) * static_cast<T>(kSeluScale * kSeluAlpha);
  if constexpr (code == floor) return std::floor(a);
  if constexpr (code == add) return a + b;
  if constexpr (code == sub) return a - b;
  if constexpr (code == mul) return a * b;
  if constexpr (code == div) return a / b;
  if constexpr (code == max) return a > b || std::isnan(a) ? a : b;
  if constexpr (code == min) return a < b || std::isnan(a) ? a : b;
  if constexpr (code == pow) return Math::pow(a, b);
  if constexpr (code == eq) return a == b ? T(1) : T(0);
  if constexpr (code == ne) return a != b ? T(1) : T(0);
  if constexpr (code == lt) return a < b ? T(1) : T(0);
  if constexpr (code == le) return a <= b ? T(1) : T(0);
  if constexpr (code == gt) return a > b ? T(1) : T(0);
  if constexpr (code == ge) return a >= b ? T(1) : T(0);
  if constexpr (code == where) return a != T(0) ? b : c;
}

namespace detail {
inline constexpr int kFirstComputing = static_cast<int>(PointwiseCode::neg);
inline constexpr int kLastComputing = static_cast<int>(PointwiseCode::where);
template <class F, int... offset>
[[gnu::always_inline]] inline void visit_code(PointwiseCode code, F& f,
                                              std::integer_sequence<int, offset...>) {
  const auto visit = [&](auto constant) __attribute__((always_inline)) {
    if (code != constant.value) return false;
    f(constant);
    return true;
  };
  static_cast<void>(
      (visit(std::integral_constant<PointwiseCode, static_cast<PointwiseCode>(kFirstComputing + offset)>{}) ||
       ...));
}
}  // namespace detail

/// Calls `f` with `std::integral_constant<PointwiseCode, code>`. Does nothing for input, constant and cast.
template <class F> [[gnu::always_inline]] inline void visit_code(PointwiseCode code, F&& f) {
  detail::visit_code(code, f,
                     std::make_integer_sequence<int, detail::kLastComputing - detail::kFirstComputing + 1>{});
}

}  // namespace tandem::engine
