#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem {

struct MatMulOptions {
  bool transpose_a = false;  ///< a is (…,K,M)
  bool transpose_b = false;  ///< b is (…,N,K)
};

}  // namespace tandem

namespace tandem::engine {

/// Matrix product with the transposes folded in: a (…,M,K) · b (…,K,N) [+ bias (…,N) over the rows] ->
/// (…,M,N). Equal leading axes make it one product per leading index, each as it would be alone, bit for bit.
/// The bias is added to the finished sum, rounded once more, as a separate `add` would.
class MatMulOp final : public Op {
 public:
  explicit MatMulOp(MatMulOptions options)
      : transpose_a(options.transpose_a), transpose_b(options.transpose_b) {}
  std::string_view name() const override { return "matmul"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::low; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const bool transpose_a, transpose_b;
};

/// One product of a MatMul: (M,K)·(K,N), and how many there are.
struct MatMulSize {
  std::int64_t count, m, k, n;
};
/// Throws Error where the operands do not fit; the caller adds their shapes.
MatMulSize matmul_size(const MatMulOp& op, std::span<const TensorType> inputs);

}  // namespace tandem::engine

namespace tandem {

/// a (…,M,K) · b (…,K,N) -> (…,M,N), leading axes equal (there may be none). Throws Error naming what
/// differs.
Tensor matmul(const Tensor& a, const Tensor& b, MatMulOptions options = {});
/// x (…,in), weight (out,in), bias (out) or undefined -> (…,out): x·weightᵀ + bias.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace tandem
