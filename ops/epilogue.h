#pragma once
#include <cstddef>
#include <string>

#include <tandem/core/graph/kernel.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// A product (matrix product or convolution) followed by a pointwise expression of its result: a
/// normalization, an activation, a residual to add. The kernel evaluates the expression on each piece of the
/// result while that piece is in the caches (Kernel::pieces). Inputs: those of the product, then the other
/// inputs of the expression. Output: the expression's value, in the type of the product's result. Every
/// element has the same bits as if the two ops ran one after the other. The pass plan/fuse_epilogues.h makes
/// this op after differentiation.
class EpilogueOp final : public Op {
 public:
  /// `product` has one output and takes `own` inputs. Input 0 of `expression` is that output; input k > 0 is
  /// input own + k − 1 of this op. `label` is the expression's name for users.
  EpilogueOp(OpPtr product, std::size_t own, PointwiseExpression expression, std::string label);
  std::string_view name() const override { return "epilogue"; }
  std::string label() const override;
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  Precision precision() const override { return product->precision(); }

  /// Returns the types of the expression's inputs: the product's result, then the others.
  Types expression_types(TypesView inputs) const;

  const OpPtr product;
  const std::size_t own;
  const PointwiseExpression expression;
  static constexpr std::size_t kMostInputs = 16;  ///< most inputs of the expression

 private:
  std::string label_;
};

/// Makes a kernel that runs the kernels of product and expression: alternating piece by piece if both have
/// the same number of pieces, otherwise one after the other.
KernelPtr make_epilogue(const KernelSpec& spec);

}  // namespace tandem::engine
