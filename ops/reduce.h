#pragma once
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

enum class Reduction : std::uint8_t { sum, mean, max, min };
std::string_view name_of(Reduction kind);

/// Sum, mean or an extreme (maximum, minimum) over axes. Of u8 and bool the sum is i32; the mean of integers
/// is an Error. NaN counts as the extreme, here and below.
class ReduceOp final : public Op {
 public:
  /// `axes` ascending, 0 … rank−1.
  ReduceOp(Reduction kind, std::vector<int> axes, bool keep_dims)
      : kind(kind), axes(std::move(axes)), keep_dims(keep_dims) {}
  std::string_view name() const override { return "reduce"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const Reduction kind;
  const std::vector<int> axes;
  const bool keep_dims;
};

/// bool of the input's shape: true at the first extreme along the axes, once per reduced group. Where the
/// gradient of an extreme goes.
class FirstExtremeOp final : public Op {
 public:
  /// `kind` is max or min.
  FirstExtremeOp(Reduction kind, std::vector<int> axes) : kind(kind), axes(std::move(axes)) {}
  std::string_view name() const override { return "first_extreme"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const Reduction kind;
  const std::vector<int> axes;
};

/// Index (i32) of the first extreme along an axis, which goes.
class ArgExtremeOp final : public Op {
 public:
  /// `kind` is max or min, `axis` 0 … rank−1.
  ArgExtremeOp(Reduction kind, int axis) : kind(kind), axis(axis) {}
  std::string_view name() const override { return "arg_extreme"; }
  std::string label() const override { return kind == Reduction::max ? "argmax" : "argmin"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const Reduction kind;
  const int axis;
};

}  // namespace tandem::engine

namespace tandem {

/// Over `axes` (negative counts from the end), or over all of them. `keep_dims` leaves extents of 1.
Tensor sum(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor mean(const Tensor& x);
/// The gradient goes to the first of equals.
Tensor max(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x, std::vector<int> axes, bool keep_dims = false);
Tensor min(const Tensor& x);

/// Σ(x − mean)²/n, or where `unbiased` /(n−1), which is an Error for n = 1.
Tensor variance(const Tensor& x, std::vector<int> axes, bool unbiased = true, bool keep_dims = false);
/// √Σx²; the derivative at 0 is 0, as PyTorch's.
Tensor l2_norm(const Tensor& x, std::vector<int> axes, bool keep_dims = false);

/// Where the first extreme along `axis` is: i32, without that axis.
Tensor argmax(const Tensor& x, int axis = -1);
Tensor argmin(const Tensor& x, int axis = -1);

}  // namespace tandem

namespace tandem::engine {

/// Sums over the axes along which `shape` broadcasts to the shape of `x`: the gradient of broadcasting. `x`
/// itself where the shape is its own.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace tandem::engine
