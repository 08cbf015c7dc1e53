#include <tandem/ops/reduce.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kLanes = 64;      // several narrow rows are handled as one row of at most this width
constexpr std::int64_t kColumns = 1024;  // most columns of one unit of work
constexpr std::int64_t kRows = 64;       // rows added in float before their sum is added in double
constexpr std::int64_t kUnits = 16;  // most units per outer index: more than threads, few enough to combine
constexpr std::int64_t kUnitElements = 1 << 15;

struct Sum {
  static constexpr float kStart = 0;
  static constexpr bool kFourRows = true;
  template <class T> [[gnu::always_inline]] static inline T combine(T a, T b) { return a + b; }
};
struct Max {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static constexpr bool kFourRows = false;  // four selects in a row are not vectorized
  template <class T> [[gnu::always_inline]] static inline T combine(T a, T b) {
    return b > a || std::isnan(b) ? b : a;
  }
};
struct Min {
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  static constexpr bool kFourRows = false;
  template <class T> [[gnu::always_inline]] static inline T combine(T a, T b) {
    return b < a || std::isnan(b) ? b : a;
  }
};

// lanes[j] = x[r][j] of all rows r, combined.
template <class F>
TANDEM_CLONES void combine_rows(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t width,
                                float* lanes) {
  std::fill_n(lanes, width, F::kStart);
  std::int64_t r = 0;
  for (; F::kFourRows && r + 4 <= rows; r += 4) {
    const float *a = x + r * stride, *b = a + stride, *c = b + stride, *d = c + stride;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j)
      lanes[j] = F::combine(lanes[j], F::combine(F::combine(a[j], b[j]), F::combine(c[j], d[j])));
  }
  for (; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j) lanes[j] = F::combine(lanes[j], x[r * stride + j]);
}

// lanes[j] = lanes[k·width + j] of all k < parts, combined; `parts` is a power of two.
template <class F> void fold(float* lanes, std::int64_t parts, std::int64_t width) {
  for (std::int64_t n = parts / 2 * width; n >= width; n /= 2)
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) lanes[j] = F::combine(lanes[j], lanes[n + j]);
}

// Reduces (rows, columns), with `stride` between rows, to (columns). Several narrow rows that are adjacent in
// memory are handled as one.
template <class F>
void reduce_rows(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                 double* result) {
  float lanes[kColumns];
  const bool side_by_side = columns == stride && 2 * columns <= kLanes;
  const auto group = static_cast<std::int64_t>(
      side_by_side ? std::bit_floor(static_cast<std::uint64_t>(kLanes / columns)) : 1);
  const std::int64_t groups = rows / group;
  std::fill_n(result, columns, static_cast<double>(F::kStart));
  std::int64_t done = 0;
  if (groups > 1) {
    for (std::int64_t g = 0; g < groups; g += kRows) {
      const std::int64_t n = std::min(kRows, groups - g);
      combine_rows<F>(x + g * group * stride, n, group * stride, group * columns, lanes);
      fold<F>(lanes, group, columns);
      for (std::int64_t j = 0; j < columns; ++j)
        result[j] = F::combine(result[j], static_cast<double>(lanes[j]));
    }
    done = groups * group;
  }
  for (std::int64_t r = done; r < rows; ++r)
    for (std::int64_t j = 0; j < columns; ++j)
      result[j] = F::combine(result[j], static_cast<double>(x[r * stride + j]));
}

// Reduces (outer, rows, columns) to (outer, columns), in units of work that depend only on rows and columns:
// a model's sum has the same bits alone and among others.
struct Plan {
  std::int64_t outer = 1, rows = 1, columns = 1;
  std::int64_t column_blocks = 1, chunks = 1;  // per outer index; per column block
  bool mean = false;

  static std::optional<Plan> make(const Shape& shape, const std::vector<int>& axes) {
    Plan plan;
    int stage = 0;  // 0: leading kept axes, 1: reduced, 2: trailing kept
    for (std::size_t a = 0; a < shape.size(); ++a) {
      if (shape[a] == 1) continue;
      const bool gone = std::find(axes.begin(), axes.end(), static_cast<int>(a)) != axes.end();
      if (gone && stage == 2) return std::nullopt;
      stage = gone ? 1 : stage == 0 ? 0 : 2;
      (stage == 0 ? plan.outer : stage == 1 ? plan.rows : plan.columns) *= shape[a];
    }
    if (plan.outer * plan.rows * plan.columns == 0) return std::nullopt;
    plan.column_blocks = (plan.columns + kColumns - 1) / kColumns;
    const std::int64_t most = std::max<std::int64_t>(1, kUnits / plan.column_blocks);
    plan.chunks = std::clamp<std::int64_t>(plan.rows * plan.columns / kUnitElements, 1, most);
    plan.chunks = std::min(plan.chunks, plan.rows);
    return plan;
  }

  std::int64_t units() const { return outer * column_blocks * chunks; }
  std::int64_t workspace() const {
    return chunks > 1 ? outer * chunks * columns * static_cast<std::int64_t>(sizeof(double)) : 0;
  }
  float finish(double value) const {
    return static_cast<float>(mean ? value / static_cast<double>(rows) : value);
  }

  // Computes one unit. It writes its part of the output, or of `partial` (outer, chunks, columns) if the rows
  // are cut into chunks.
  template <class F> void run_unit(std::int64_t unit, const float* x, float* y, double* partial) const {
    double result[kColumns];
    const std::int64_t chunk = unit % chunks, o = unit / chunks / column_blocks;
    const std::int64_t first = unit / chunks % column_blocks * kColumns,
                       count = std::min(kColumns, columns - first);
    const std::int64_t row = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    reduce_rows<F>(x + (o * rows + row) * columns + first, end - row, columns, count, result);
    if (chunks > 1)
      std::copy_n(result, count, partial + (o * chunks + chunk) * columns + first);
    else
      for (std::int64_t j = 0; j < count; ++j) y[o * columns + first + j] = finish(result[j]);
  }

  template <class F> void run(const Launch& l, int threads) const {
    const auto* x = input<float>(l, 0);
    auto* y = output<float>(l, 0);
    auto* partial = static_cast<double*>(l.workspace);
    parallel_parts(threads, units(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t u = begin; u < end; ++u) run_unit<F>(u, x, y, partial);
    });
    if (chunks == 1) return;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t j = 0; j < columns; ++j) {
        double total = partial[o * chunks * columns + j];
        for (std::int64_t c = 1; c < chunks; ++c)
          total = F::combine(total, partial[(o * chunks + c) * columns + j]);
        y[o * columns + j] = finish(total);
      }
  }
};

}  // namespace

KernelPtr make_reduce_cpu(const KernelSpec& spec) {
  const auto& op = static_cast<const ReduceOp&>(spec.op);
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  auto plan = Plan::make(spec.inputs[0].shape, op.axes);
  if (!plan) return nullptr;
  plan->mean = op.kind == Reduction::mean;
  const int threads = useful_threads(spec.threads, spec.inputs[0].bytes());
  const auto make = [&](auto f) {
    return make_kernel(
        [plan = *plan, threads](const Launch& l) { plan.template run<decltype(f)>(l, threads); },
        plan->workspace());
  };
  return op.kind == Reduction::max ? make(Max{}) : op.kind == Reduction::min ? make(Min{}) : make(Sum{});
}

}  // namespace tandem::engine
