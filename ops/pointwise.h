#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// An op that evaluates a pointwise expression of its last inputs, element by element. A pass can replace one
/// of these inputs by the expression that computes it (plan/fuse_pointwise.h).
class TakesExpression : public Op {
 public:
  /// Input k of the expression is input `first` + k of the op; the expression does not read the inputs
  /// before. Its value is rounded to `dtype`. Throws Error on a malformed expression.
  TakesExpression(PointwiseExpression expression, DType dtype, std::size_t first);
  /// Returns the same op, with the same label and another expression.
  virtual OpPtr with(PointwiseExpression expression) const = 0;

  const PointwiseExpression expression;
  const DType dtype;
  const std::size_t first;
};

/// A pointwise expression, evaluated element by element. Every pointwise operation is a PointwiseOp, so
/// fusing two of them means composing their expressions. The fast kernel evaluates tile by tile in cache. A
/// composed expression gives the bits of its parts: a `cast` replaces each intermediate of narrower dtype.
///
/// Inputs broadcast to one shape by NumPy's rule, which is the output's shape. Arithmetic is in f64 if an
/// input or the output is f64, i32 or i64 (so i64 is exact to 2^53), otherwise in f32; the last register is
/// stored as `dtype`.
class PointwiseOp final : public TakesExpression {
 public:
  /// `label` is the op's name for users. Its default is the name of the only computing term ("relu"), or
  /// "pointwise" if there are several.
  PointwiseOp(PointwiseExpression expression, DType dtype, std::string label = {})
      : TakesExpression(std::move(expression), dtype, 0), label_(std::move(label)) {}
  OpPtr with(PointwiseExpression expression) const override;
  std::string_view name() const override { return "pointwise"; }
  std::string attributes() const override;
  std::string label() const override;
  Precision precision() const override { return Precision::follows; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;

 private:
  std::string label_;
};

/// Returns the dtype of the arithmetic, f32 or f64. Two expressions can be composed if theirs agree.
DType pointwise_precision(TypesView inputs, DType output);

/// Applies a PointwiseOp. Throws Error if `dtype` and all inputs are integer types and the result can have a
/// fraction: cast the inputs to a floating dtype first.
Tensor apply_pointwise(PointwiseExpression expression, DType dtype, const Tensors& inputs,
                       std::string label = {});

}  // namespace tandem::engine

namespace tandem {

/// Two operands broadcast, or throw Error. Mixed dtypes give the wider one: f64, f32, f16 or bf16 (together
/// they give f32), i64, i32, u8, bool. Integer results saturate. For integers, quotients, roots,
/// exponentials, powers with a Tensor exponent and constants with a fraction throw Error, also in all
/// functions below. A bool counts as 0 or 1: two give a bool (the sum is "or", the product "and", and there
/// is no difference), and a bool with a constant gives i32.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

/// As in <cmath>: a negative base gives NaN unless the exponent is whole.
Tensor pow(const Tensor& base, const Tensor& exponent);

/// x·factor and x + addend, in the dtype of `x`; of a bool, in i32.
Tensor scale(const Tensor& x, double factor);
Tensor add_scalar(const Tensor& x, double addend);
/// Computed by products, a quotient or roots if `exponent` is 1, 2, 3, −1, ½ or −½.
Tensor pow(const Tensor& x, double exponent);
/// At a tie the gradient of `x` is 0, as in PyTorch's clamp.
Tensor maximum(const Tensor& x, double low);
Tensor minimum(const Tensor& x, double high);
/// min(max(x, low), high), with gradient 0 at both ends. Throws Error unless low ≤ high.
Tensor clamp(const Tensor& x, double low, double high);

/// The next functions return the shape and dtype of `x`.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
/// floor has no derivative.
Tensor floor(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
/// log(1 + exp x), without overflow.
Tensor softplus(const Tensor& x);
/// x·Φ(x), exact: by the error function.
Tensor gelu(const Tensor& x);

/// Comparisons broadcast and return bool; they have no derivative.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
/// The same with a constant, rounded to the dtype of `x` if that is floating.
Tensor equal(const Tensor& x, double value);
Tensor not_equal(const Tensor& x, double value);
Tensor less(const Tensor& x, double value);
Tensor less_equal(const Tensor& x, double value);
Tensor greater(const Tensor& x, double value);
Tensor greater_equal(const Tensor& x, double value);

/// Returns the elements of `a` where `condition` is not zero, of `b` where it is zero; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);

/// Converts `x` to `dtype`: to floats it rounds to nearest, to integers it truncates towards zero and
/// saturates. The derivative is the cast back. Returns `x` itself if it already has that dtype.
Tensor cast(const Tensor& x, DType dtype);

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& x);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
/// Comparisons of elements. There is no operator==, which would not tell whether two Tensors are the same.
Tensor operator<(const Tensor& a, const Tensor& b);
Tensor operator<=(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator>=(const Tensor& a, const Tensor& b);
Tensor operator<(const Tensor& a, double b);
Tensor operator<=(const Tensor& a, double b);
Tensor operator>(const Tensor& a, double b);
Tensor operator>=(const Tensor& a, double b);

}  // namespace tandem
