// Finds the first extreme along an axis, in f32. Neighboring elements are searched at once. If the axis is
// the last, a long row is folded into lanes, whose extremes are then compared.
#include <algorithm>

#include <tandem/core/base/clones.h>
#include <tandem/ops/axis_split.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/reduce.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kColumns = 256;  // most columns searched at once
constexpr std::int64_t kLanes = 32;     // lanes of a folded row
constexpr std::int64_t kLongRow = 256;

// True if `x` replaces `best`, which comes earlier: a NaN replaces everything except a NaN.
template <bool largest> [[gnu::always_inline]] inline bool displaces(float x, float best) {
  return (largest ? !(x <= best) : !(x >= best)) & (best == best);
}

// Writes the extreme of x[r·stride + j] over the rows r to best[j], and its row to at[j], for j < width.
template <bool largest>
TANDEM_CLONES void search_rows(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t width,
                               float* best, std::int32_t* at) {
  std::copy_n(x, width, best);
  std::fill_n(at, width, 0);
  for (std::int64_t r = 1; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j) {
      const float value = x[r * stride + j];
      const bool better = displaces<largest>(value, best[j]);
      best[j] = better ? value : best[j];
      at[j] = better ? static_cast<std::int32_t>(r) : at[j];
    }
}

// Writes the index of the first extreme of each row of x (rows, n) to `at`. Short rows are not worth lanes.
template <bool largest>
void search_each(const float* x, std::int64_t rows, std::int64_t n, std::int32_t* at) {
  float lanes[kLanes];
  std::int32_t turns[kLanes];
  for (std::int64_t r = 0; r < rows; ++r, x += n) {
    const std::int64_t whole = n < kLongRow ? 0 : n / kLanes;
    float best = x[0];
    std::int64_t where = 0;
    if (whole > 0) {
      search_rows<largest>(x, whole, kLanes, kLanes, lanes, turns);
      best = lanes[0], where = turns[0] * kLanes;
    }
    for (std::int64_t j = 1; whole > 0 && j < kLanes; ++j) {  // of equal values, the first in the row
      const std::int64_t place = turns[j] * kLanes + j;
      const bool equal = lanes[j] == best || (lanes[j] != lanes[j] && best != best);
      if (equal ? place < where : displaces<largest>(lanes[j], best)) best = lanes[j], where = place;
    }
    for (std::int64_t i = std::max<std::int64_t>(1, whole * kLanes); i < n; ++i)
      if ((largest ? !(x[i] <= best) : !(x[i] >= best)) && best == best) best = x[i], where = i;
    at[r] = static_cast<std::int32_t>(where);
  }
}

template <bool largest> KernelPtr make(const AxisSplit& s, int threads) {
  const std::int64_t blocks = (s.inner + kColumns - 1) / kColumns;
  return make_kernel([=](const Launch& l) {
    const auto* x = input<float>(l, 0);
    auto* y = output<std::int32_t>(l, 0);
    parallel_parts(threads, s.outer * blocks, [&](std::int64_t begin, std::int64_t end) {
      if (s.inner == 1) return search_each<largest>(x + begin * s.extent, end - begin, s.extent, y + begin);
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t outer = unit / blocks, first = unit % blocks * kColumns;
        float best[kColumns];
        search_rows<largest>(x + outer * s.extent * s.inner + first, s.extent, s.inner,
                             std::min(kColumns, s.inner - first), best, y + outer * s.inner + first);
      }
    });
  });
}

}  // namespace

KernelPtr make_arg_extreme_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const auto& op = static_cast<const ArgExtremeOp&>(spec.op);
  const AxisSplit split(spec.inputs[0].shape, op.axis);
  const int threads = useful_threads(spec.threads, spec.inputs[0].bytes());
  return op.kind == Reduction::max ? make<true>(split, threads) : make<false>(split, threads);
}

}  // namespace tandem::engine
