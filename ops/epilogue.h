#pragma once
#include <cstddef>
#include <string>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/op.h>
#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// A product (of matrices, a convolution) with an expression of its result, evaluated on each piece of that
/// while the piece is in the caches (Kernel::pieces): a normalization, an activation, a residual to add. The
/// product's inputs, then the expression's others -> the expression's value, of the product's type. Every
/// element has the bits that the two have apart. A pass joins them after differentiation
/// (plan/fuse_epilogues.h).
class EpilogueOp final : public Op {
 public:
  /// Input 0 of `expression` is the result of `product`, an op of one output that takes `own` inputs; its
  /// input k > 0 is input own + k − 1 of this op. `label`: what users call the expression.
  EpilogueOp(OpPtr product, std::size_t own, PointwiseExpression expression, std::string label);
  std::string_view name() const override { return "epilogue"; }
  std::string label() const override;
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
  Precision precision() const override { return product->precision(); }

  /// The types of the expression's inputs: the product's result and the others.
  Types expression_types(std::span<const TensorType> inputs) const;

  const OpPtr product;
  const std::size_t own;
  const PointwiseExpression expression;
  static constexpr std::size_t kMostInputs = 16;  ///< of the expression

 private:
  std::string label_;
};

/// The kernels of product and expression, piece by piece where both are made in as many.
KernelPtr make_epilogue(const KernelSpec& spec);

}  // namespace tandem::engine
