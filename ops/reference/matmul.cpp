// Matrix products as plain loops on one thread. Every sum runs over k in order, in double for all operand
// types, and is rounded once; then the bias is added and the result is rounded again.
#include <algorithm>

#include <tandem/core/base/clones.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// A matrix as it is multiplied, in any order in memory.
template <class T> struct MatrixView {
  const T* data;
  std::int64_t row_stride, column_stride;
  double operator()(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(data[row * row_stride + column * column_stride]);
  }
};

// Extents of a tile: rows summed at once, rows, depth and columns. A tile of b has 64 KiB, and so do the
// sums.
constexpr std::int64_t kStrip = 4, kRows = 128, kDepth = 128, kColumns = 64;

// sums (kStrip,kColumns) += a (depth,kStrip)ᵀ · b (depth,kColumns). Compilers vectorize the inner loops,
// because their lengths are fixed.
TANDEM_CLONES void multiply_strip(std::int64_t depth, const double* a, const double* b, double* sums) {
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t i = 0; i < kStrip; ++i) {
      const double factor = a[k * kStrip + i];
      for (std::int64_t j = 0; j < kColumns; ++j) sums[i * kColumns + j] += factor * b[k * kColumns + j];
    }
}

// sums (kRows,kColumns) = rows × columns of a·b from (row, column) on. Small copies of the operands, in
// double and padded with zeros, keep transposes and dtypes out of the inner loops.
template <class T>
void multiply_tile(MatrixView<T> a, MatrixView<T> b, std::int64_t row, std::int64_t rows, std::int64_t column,
                   std::int64_t columns, std::int64_t k, double* sums) {
  double a_strip[kDepth * kStrip], b_tile[kDepth * kColumns];
  std::fill(sums, sums + kRows * kColumns, 0.0);
  for (std::int64_t k0 = 0; k0 < k; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, k - k0);
    for (std::int64_t p = 0; p < depth; ++p)
      for (std::int64_t j = 0; j < kColumns; ++j)
        b_tile[p * kColumns + j] = j < columns ? b(k0 + p, column + j) : 0.0;
    for (std::int64_t i0 = 0; i0 < rows; i0 += kStrip) {
      for (std::int64_t p = 0; p < depth; ++p)
        for (std::int64_t i = 0; i < kStrip; ++i)
          a_strip[p * kStrip + i] = i0 + i < rows ? a(row + i0 + i, k0 + p) : 0.0;
      multiply_strip(depth, a_strip, b_tile, sums + i0 * kColumns);
    }
  }
}

// c (m,n) = a (m,k) · b (k,n) + bias (n), if there is one.
template <class T> void multiply(const MatMulSize& s, MatrixView<T> a, MatrixView<T> b, const T* bias, T* c) {
  double sums[kRows * kColumns];
  for (std::int64_t row = 0; row < s.m; row += kRows)
    for (std::int64_t column = 0; column < s.n; column += kColumns) {
      const std::int64_t rows = std::min(kRows, s.m - row), columns = std::min(kColumns, s.n - column);
      multiply_tile(a, b, row, rows, column, columns, s.k, sums);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          const T sum = static_cast<T>(sums[i * kColumns + j]);
          c[(row + i) * s.n + column + j] = bias ? sum + bias[column + j] : sum;
        }
    }
}

template <class T>
MatrixView<T> view(const void* data, std::int64_t index, std::int64_t rows, std::int64_t columns,
                   bool transposed) {
  const T* matrix = static_cast<const T*>(data) + index * rows * columns;
  return transposed ? MatrixView<T>{matrix, 1, rows} : MatrixView<T>{matrix, columns, 1};
}

template <class T> KernelPtr make(const MatMulOp& op, const MatMulSize& s, bool has_bias) {
  return make_kernel([s, has_bias, ta = op.transpose_a, tb = op.transpose_b](const Launch& l) {
    for (std::int64_t i = 0; i < s.count; ++i)
      multiply<T>(s, view<T>(l.in[0], i, s.m, s.k, ta), view<T>(l.in[1], i, s.k, s.n, tb),
                  has_bias ? input<T>(l, 2) + i * s.n : nullptr, output<T>(l, 0) + i * s.m * s.n);
  });
}

}  // namespace

KernelPtr make_matmul_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const MatMulOp&>(spec.op);
  const MatMulSize size = matmul_size(op, spec.inputs);
  const bool has_bias = spec.inputs.size() == 3;
  return make_for<float, double>(spec.inputs[0].dtype,
                                 [&](auto zero) { return make<decltype(zero)>(op, size, has_bias); });
}

}  // namespace tandem::engine
