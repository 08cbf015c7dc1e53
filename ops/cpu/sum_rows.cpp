#include <tandem/ops/cpu/sum_rows.h>

#include <algorithm>
#include <array>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::engine {
namespace {

// Adds `count` columns of rows that lie `stride` apart.
template <class E>
TANDEM_CLONES void add_rows(const E* x, std::int64_t rows, std::int64_t stride, std::int64_t count,
                            float* sums) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) sums[c] += x[r * stride + c];
}

// The sums of a block of columns stay in the first-level cache.
template <class E>
void sum_blocks(const E* x, std::int64_t rows, std::int64_t columns, E* sums, int threads) {
  constexpr std::int64_t kBlock = 128;
  parallel_parts(threads, columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += kBlock) {
      const std::int64_t count = std::min(kBlock, end - c);
      std::array<float, kBlock> block{};
      add_rows(x + c, rows, columns, count, block.data());
      std::copy_n(block.begin(), count, sums + c);
    }
  });
}

}  // namespace

TANDEM_CLONES void add_share(const float* x, float divisor, std::int64_t n, float* sums) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) sums[i] += x[i] / divisor;
}

TANDEM_CLONES void add_row(const float* x, std::int64_t n, float* sums) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

void sum_rows(const float* x, std::int64_t rows, std::int64_t columns, float* sums, int threads) {
  sum_blocks(x, rows, columns, sums, threads);
}
void sum_rows(const BFloat16* x, std::int64_t rows, std::int64_t columns, BFloat16* sums, int threads) {
  sum_blocks(x, rows, columns, sums, threads);
}

}  // namespace tandem::engine
