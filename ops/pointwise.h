#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// An op that reads its last inputs as an expression of them, element by element. A pass may put what made
/// one of them into the expression (plan/fuse_pointwise.h).
class TakesExpression : public Op {
 public:
  /// Input k of the expression is input `first` + k of the op; the inputs before are the op's own. The value
  /// is rounded to `dtype`. Throws Error on a malformed expression.
  TakesExpression(PointwiseExpression expression, DType dtype, std::size_t first);
  /// The same op, by the same label, with another expression.
  virtual OpPtr with(PointwiseExpression expression) const = 0;

  const PointwiseExpression expression;
  const DType dtype;
  const std::size_t first;
};

/// An expression evaluated element by element. Every pointwise operation is one of these, so fusing is
/// composing expressions; the fast kernel evaluates tile by tile in cache, and a composed expression gives
/// the bits of its parts (where an intermediate had a narrower dtype, the composed expression has a `cast`).
///
/// Inputs broadcast to one shape by NumPy's rule, the output's. Arithmetic is in f32, or in f64 where an
/// input or the output is f64, i32 or i64 (so i64 is exact to 2^53); the last register is stored as `dtype`.
class PointwiseOp final : public TakesExpression {
 public:
  /// `label` is what users call it: without one, the instruction's name where there is just one ("relu").
  PointwiseOp(PointwiseExpression expression, DType dtype, std::string label = {})
      : TakesExpression(std::move(expression), dtype, 0), label_(std::move(label)) {}
  OpPtr with(PointwiseExpression expression) const override;
  std::string_view name() const override { return "pointwise"; }
  std::string attributes() const override;
  std::string label() const override;
  Precision precision() const override { return Precision::follows; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;

 private:
  std::string label_;
};

/// The type arithmetic is done in: f32 or f64. Expressions may be composed where theirs agree.
DType pointwise_precision(std::span<const TensorType> inputs, DType output);

/// A new expression, applied. Throws Error where `dtype` is an integer type and whole inputs may have results
/// with a fraction: cast them to a floating dtype first.
Tensor apply_pointwise(PointwiseExpression expression, DType dtype, const Tensors& inputs,
                       std::string label = {});

}  // namespace tandem::engine

namespace tandem {

/// Two operands broadcast (Error where they do not); mixed dtypes give the wider one: f64, f32, f16 and bf16
/// (f32 from the two), i64, i32, u8, bool. Integers saturate, and are not divided, nor have they powers,
/// roots, exponentials or constants with a fraction: these throw Error, as of all functions below.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

/// As in <cmath>: a negative base has powers of whole exponents alone, NaN otherwise.
Tensor pow(const Tensor& base, const Tensor& exponent);

/// With a constant, in the Tensor's own dtype: x·factor, x + addend.
Tensor scale(const Tensor& x, double factor);
Tensor add_scalar(const Tensor& x, double addend);
/// Products, quotients and roots where `exponent` is 1, 2, 3, −1, ½ or −½.
Tensor pow(const Tensor& x, double exponent);
/// At a tie the gradient is the constant's, as in PyTorch's clamp: `x` has 0.
Tensor maximum(const Tensor& x, double low);
Tensor minimum(const Tensor& x, double high);
/// min(max(x, low), high), with gradient 0 at both ends. Throws Error unless low ≤ high.
Tensor clamp(const Tensor& x, double low, double high);

/// Same shape and dtype as `x`.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
/// Has no derivative.
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

/// Comparisons broadcast and give bool; they have no derivative.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);

/// Elements of `a` where `condition` is not zero, of `b` elsewhere; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);

/// The same values as `dtype`: floats round to nearest, integers truncate towards zero and saturate. Its
/// derivative is the cast back. `x` itself where it has that dtype.
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

}  // namespace tandem
