#include <tandem/ops/cpu/tile_kernels.h>

#include <type_traits>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/element.h>
#include <tandem/ops/cpu/vector_math.h>
#include <tandem/ops/pointwise_math.h>

namespace tandem::engine {
namespace {

using Code = PointwiseCode;

template <Code code, bool ca, bool cb, bool cc>
[[gnu::always_inline]] inline void compute_elements(float* to, const float* a, const float* b, const float* c,
                                                    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float y = operands_of(code) > 1 ? b[cb ? 0 : i] : 0.0f;
    const float z = operands_of(code) > 2 ? c[cc ? 0 : i] : 0.0f;
    to[i] = pointwise_element<code, VectorMath>(a[ca ? 0 : i], y, z);
  }
}

template <class F> [[gnu::always_inline]] inline void visit_pairing(Code code, const F& f) {
  switch (code) {
    case Code::add: return f(std::integral_constant<Code, Code::add>());
    case Code::sub: return f(std::integral_constant<Code, Code::sub>());
    case Code::mul: return f(std::integral_constant<Code, Code::mul>());
    default: return f(std::integral_constant<Code, Code::relu>());
  }
}

// to = second(first(a, b), c); if `comes_second`, to = second(c, first(a, b)).
template <Code first, Code second, bool comes_second>
[[gnu::always_inline]] inline void compute_pair_elements(float* to, const float* a, const float* b,
                                                         const float* c, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float between = pointwise_element<first, VectorMath>(a[i], b[i], 0.0f);
    const float other = operands_of(second) > 1 ? c[i] : 0.0f;
    to[i] = comes_second ? pointwise_element<second, VectorMath>(other, between, 0.0f)
                         : pointwise_element<second, VectorMath>(between, other, 0.0f);
  }
}

}  // namespace

TANDEM_CLONES void compute_tile(Code code, float* to, TileOperand a, TileOperand b, TileOperand c,
                                std::int64_t n) {
  visit_code(
      code, [&](auto fixed) __attribute__((always_inline)) {
        constexpr Code kCode = decltype(fixed)::value;
        constexpr int kOperands = operands_of(kCode);
        if constexpr (kOperands == 2) {
          if (a.constant) return compute_elements<kCode, true, false, false>(to, a.data, b.data, c.data, n);
          if (b.constant) return compute_elements<kCode, false, true, false>(to, a.data, b.data, c.data, n);
        }
        if constexpr (kOperands == 3) {
          if (b.constant) return compute_elements<kCode, false, true, false>(to, a.data, b.data, c.data, n);
          if (c.constant) return compute_elements<kCode, false, false, true>(to, a.data, b.data, c.data, n);
        }
        compute_elements<kCode, false, false, false>(to, a.data, b.data, c.data, n);
      });
}

bool pairs_first(Code code) { return code == Code::add || code == Code::sub || code == Code::mul; }
bool pairs_second(Code code) { return pairs_first(code) || code == Code::relu; }

TANDEM_CLONES void compute_pair(Code first, Code second, bool comes_second, float* to, const float* a,
                                const float* b, const float* c, std::int64_t n) {
  visit_pairing(
      first, [&](auto f) __attribute__((always_inline)) {
        visit_pairing(
            second, [&](auto s) __attribute__((always_inline)) {
              constexpr Code kFirst = decltype(f)::value, kSecond = decltype(s)::value;
              if constexpr (kFirst != Code::relu) {
                if (comes_second && kSecond == Code::sub)
                  compute_pair_elements<kFirst, kSecond, true>(to, a, b, c, n);
                else
                  compute_pair_elements<kFirst, kSecond, false>(to, a, b, c, n);
              }
            });
      });
}

void load_tile(DType dtype, const BroadcastWalk& walk, const void* from, std::int64_t begin, std::int64_t n,
               float* to) {
  visit_dtype(dtype, [&](auto zero) {
    using E = decltype(zero);
    walk.visit(begin, n,
               [&](std::int64_t done, std::int64_t count, std::int64_t offset, std::int64_t stride) {
                 const E* source = static_cast<const E*>(from) + offset;
                 float* target = to + done;
                 if constexpr (std::is_same_v<E, BFloat16>)
                   if (stride == 1) return bf16_to_floats(&source->bits, target, count);
                 if (stride == 1)
                   for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i]);
                 else
                   for (std::int64_t i = 0; i < count; ++i)
                     target[i] = static_cast<float>(source[i * stride]);
               });
  });
}

void store_tile(DType dtype, const float* from, void* to, std::int64_t begin, std::int64_t n) {
  visit_dtype(dtype, [&](auto zero) {
    using E = decltype(zero);
    E* target = static_cast<E*>(to) + begin;
    if constexpr (std::is_same_v<E, BFloat16>)
      floats_to_bf16(from, &target->bits, n);
    else
      for (std::int64_t i = 0; i < n; ++i) target[i] = convert_element<E>(from[i]);
  });
}

void cast_tile(DType dtype, const float* from, float* to, std::int64_t n) {
  visit_dtype(dtype, [&](auto zero) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(convert_element<decltype(zero)>(from[i]));
  });
}

}  // namespace tandem::engine
