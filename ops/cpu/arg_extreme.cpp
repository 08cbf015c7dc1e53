// Where the first extreme along an axis is, in f32. Lanes of neighbouring elements are searched side by side:
// where the axis is the last, a row is folded into lanes, whose winners are then compared.
#include <algorithm>

#include <tandem/core/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/index.h>
#include <tandem/ops/reduce.h>

namespace tandem {
namespace {

constexpr std::int64_t kColumns = 256;  // searched side by side, at most
constexpr std::int64_t kLanes = 32;     // that a row is folded into

// True where `x` takes the place of `best`, which came first: a NaN wins over all but a NaN.
template <bool largest> [[gnu::always_inline]] inline bool displaces(float x, float best) {
  return (largest ? !(x <= best) : !(x >= best)) & (best == best);
}

// best (width), at (width): the extreme of x[r·stride + j] over the rows r, and its row.
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

template <bool largest> std::int32_t search_row(const float* x, std::int64_t n) {
  float best[kLanes], winner = x[0];
  std::int32_t at[kLanes], where = 0;
  const auto compare = [&](float value, std::int32_t position) {
    // Lanes end in no order: of equals, NaN among them, the first is wanted.
    const bool equal = !displaces<largest>(winner, value) && !displaces<largest>(value, winner);
    if (equal ? position < where : displaces<largest>(value, winner)) winner = value, where = position;
  };
  const std::int64_t rows = n / kLanes;
  if (rows > 0) search_rows<largest>(x, rows, kLanes, kLanes, best, at);
  for (std::int64_t j = 0; rows > 0 && j < kLanes; ++j)
    compare(best[j], at[j] * static_cast<std::int32_t>(kLanes) + static_cast<std::int32_t>(j));
  for (std::int64_t i = rows * kLanes; i < n; ++i) compare(x[i], static_cast<std::int32_t>(i));
  return where;
}

template <bool largest> KernelPtr make(const AxisSplit& s, int threads) {
  const std::int64_t blocks = (s.inner + kColumns - 1) / kColumns;
  return make_kernel([=](const Launch& l) {
    const auto* x = static_cast<const float*>(l.in[0]);
    auto* y = static_cast<std::int32_t*>(l.out[0]);
    parallel_parts(threads, s.outer * blocks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t outer = unit / blocks, first = unit % blocks * kColumns;
        if (s.inner == 1) {
          y[outer] = search_row<largest>(x + outer * s.extent, s.extent);
          continue;
        }
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
  const auto& op = static_cast<const ArgExtreme&>(spec.op);
  const AxisSplit split(spec.inputs[0].shape, op.axis);
  const int threads = useful_threads(spec.threads, spec.inputs[0].bytes());
  return op.kind == Reduction::max ? make<true>(split, threads) : make<false>(split, threads);
}

}  // namespace tandem
