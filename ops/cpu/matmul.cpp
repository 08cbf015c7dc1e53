// Matrix products by oneDNN. All products of one op share one primitive.
#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/matmul.h>

namespace tandem::engine {
namespace {

onednn::Operand matrix(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed) {
  return {dtype,
          {rows, columns},
          transposed ? std::vector{std::int64_t{1}, rows} : std::vector{columns, std::int64_t{1}}};
}

class MatMulKernel final : public Kernel {
 public:
  MatMulKernel(onednn::PrimitivePtr product, const KernelSpec& spec, const MatMulSize& size, int callers)
      : product_(std::move(product)),
        count_(size.count),
        callers_(callers),
        has_bias_(spec.inputs.size() == 3) {
    const std::int64_t element = size_of(spec.inputs[0].dtype);
    strides_ = {size.m * size.k * element, size.k * size.n * element, size.n * element,
                size.m * size.n * element};
  }
  std::int64_t workspace() const override { return callers_ * product_->workspace(); }

  void run(const Launch& l) const override {
    if (callers_ == 1) return product_->require_success(run_products(l, 0, count_, l.workspace));
    std::atomic<std::int64_t> next{0};
    std::atomic<int> failed{0};
    parallel_parts(callers_, count_, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t caller = next.fetch_add(1);
      if (const int status = run_products(
              l, begin, end, static_cast<std::byte*>(l.workspace) + caller * product_->workspace()))
        failed = status;
    });
    product_->require_success(failed);
  }

  int pieces() const override { return count_ == 1 ? product_->pieces() : 1; }
  void run_piece(const Launch& l, int piece) const override {
    if (count_ > 1) return run(l);
    const auto [operands, n] = operands_of(l, 0);
    product_->require_success(product_->run_piece({operands.data(), n}, l.workspace, piece));
  }

 private:
  // The addresses of product i's operands, and their number.
  std::pair<std::array<void*, 4>, std::size_t> operands_of(const Launch& l, std::int64_t i) const noexcept {
    std::array<void*, 4> operands{};
    std::size_t n = 0;
    for (std::size_t in = 0; in < (has_bias_ ? 3u : 2u); ++in)
      operands[n++] = static_cast<std::byte*>(const_cast<void*>(l.in[in])) + i * strides_[in];
    operands[n++] = output<std::byte>(l, 0) + i * strides_[3];
    return {operands, n};
  }
  // Returns the status of the first product that fails, or 0.
  int run_products(const Launch& l, std::int64_t begin, std::int64_t end, void* workspace) const noexcept {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto [operands, n] = operands_of(l, i);
      if (const int status = product_->run({operands.data(), n}, workspace)) return status;
    }
    return 0;
  }

  onednn::PrimitivePtr product_;
  std::int64_t count_;
  int callers_;  // threads that compute separate products; 1: the whole team computes each product
  bool has_bias_;
  std::array<std::int64_t, 4> strides_;  // bytes from product to product: a, b, bias, c
};

}  // namespace

KernelPtr make_matmul_cpu(const KernelSpec& spec) {
  const auto& op = static_cast<const MatMulOp&>(spec.op);
  const MatMulSize s = matmul_size(op, spec.inputs);
  const DType dtype = spec.inputs[0].dtype;
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.k) * static_cast<double>(s.n);
  // Depends only on the size of one product, so that a product has the same bits alone and among others.
  const bool alone = flops < kTeamFlops;
  const bool share = alone && s.count >= spec.threads && flops * static_cast<double>(s.count) >= kTeamFlops;
  const int callers = share ? spec.threads : 1;
  const auto bias = matrix(dtype, 1, s.n, false);
  auto product =
      onednn::matmul(matrix(dtype, s.m, s.k, op.transpose_a), matrix(dtype, s.k, s.n, op.transpose_b),
                     spec.inputs.size() == 3 ? &bias : nullptr, matrix(dtype, s.m, s.n, false),
                     {alone ? 1 : spec.threads, std::max(4, callers)});
  if (!product) return nullptr;
  return std::make_unique<MatMulKernel>(std::move(product), spec, s, callers);
}

}  // namespace tandem::engine
