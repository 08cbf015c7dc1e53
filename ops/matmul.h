#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem {

struct MatMulOptions {
  bool transpose_a = false;  ///< a is (…,K,M)
  bool transpose_b = false;  ///< b is (…,N,K)
};

/// Returns a (…,M,K) · b (…,K,N), of shape (…,M,N). Leading axes follow NumPy's broadcasting rule. Throws
/// Error naming the difference.
Tensor matmul(const Tensor& a, const Tensor& b, MatMulOptions options = {});
/// Returns x·weightᵀ + bias, of shape (…,out), for x (…,in), weight (out,in), bias (out) or undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace tandem

namespace tandem::engine {

/// Matrix product with optional transposes: a (…,M,K) · b (…,K,N) [+ bias (…,N) on every row] -> (…,M,N).
/// The leading axes are equal; each leading index has its own product, bit-identical to that product alone.
/// The bias is added to the rounded sum and the result is rounded again, as a separate `add` does.
class MatMulOp final : public Op {
 public:
  explicit MatMulOp(MatMulOptions options)
      : transpose_a(options.transpose_a), transpose_b(options.transpose_b) {}
  std::string_view name() const override { return "matmul"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::low; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }

  const bool transpose_a, transpose_b;
};

/// Extents of each product of a MatMulOp, (m,k)·(k,n), and the number of products.
struct MatMulSize {
  std::int64_t count, m, k, n;
};
/// Throws Error if the operands do not fit; the caller adds their shapes to the message.
MatMulSize matmul_size(const MatMulOp& op, TypesView inputs);

}  // namespace tandem::engine
