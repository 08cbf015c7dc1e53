#pragma once
#include <concepts>
#include <initializer_list>
#include <utility>
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

enum class Reduction : std::uint8_t { sum, mean, max, min };
std::string_view name_of(Reduction kind);

/// Sum, mean or an extreme (maximum, minimum) over axes. The sum of u8 and bool is i32; the mean of integers
/// throws Error. Here and below, a NaN counts as the extreme.
class ReduceOp final : public StreamingOp {
 public:
  /// `axes` are ascending, each in 0 … rank−1.
  ReduceOp(Reduction kind, std::vector<int> axes, bool keep_dims)
      : kind(kind), axes(std::move(axes)), keep_dims(keep_dims) {}
  std::string_view name() const override { return "reduce"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  double flops_per_element() const override { return 1; }

  const Reduction kind;
  const std::vector<int> axes;
  const bool keep_dims;
};

/// bool of the input's shape: true at the first extreme of each reduced group. The gradient of an extreme
/// goes to that element.
class FirstExtremeOp final : public StreamingOp {
 public:
  /// `kind` is max or min.
  FirstExtremeOp(Reduction kind, std::vector<int> axes) : kind(kind), axes(std::move(axes)) {}
  std::string_view name() const override { return "first_extreme"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  double flops_per_element() const override { return 1; }

  const Reduction kind;
  const std::vector<int> axes;
};

/// Index (i32) of the first extreme along an axis; the output lacks that axis.
class ArgExtremeOp final : public StreamingOp {
 public:
  /// `kind` is max or min, `axis` 0 … rank−1.
  ArgExtremeOp(Reduction kind, int axis) : kind(kind), axis(axis) {}
  std::string_view name() const override { return "arg_extreme"; }
  std::string label() const override { return kind == Reduction::max ? "argmax" : "argmin"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  double flops_per_element() const override { return 1; }

  const Reduction kind;
  const int axis;
};

/// Sums `x` over the axes along which `shape` broadcasts to the shape of `x`; this is the gradient of
/// broadcasting. Returns `x` itself if it has that shape.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace tandem::engine

namespace tandem {

/// One axis, or several: sum(x, 1), sum(x, {0, -1}). Negative ones count from the end.
struct Axes {
  template <std::integral T>
  requires(!std::same_as<T, bool>) Axes(T axis) : list{static_cast<int>(axis)} {}  // NOLINT: converts
  Axes(std::initializer_list<int> axes) : list(axes) {}                            // NOLINT: converts
  Axes(std::vector<int> axes) : list(std::move(axes)) {}                           // NOLINT: converts
  std::vector<int> list;
};

/// Reduce over `axes`, or over all axes. `keep_dims` keeps them with extent 1.
Tensor sum(const Tensor& x, Axes axes, bool keep_dims = false);
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x, Axes axes, bool keep_dims = false);
Tensor mean(const Tensor& x);
/// The gradient of an extreme goes to the first of equal elements.
Tensor max(const Tensor& x, Axes axes, bool keep_dims = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x, Axes axes, bool keep_dims = false);
Tensor min(const Tensor& x);

/// Σ(x − mean)²/(n−1) if `unbiased`, otherwise Σ(x − mean)²/n. Throws Error if `unbiased` and n = 1.
Tensor variance(const Tensor& x, Axes axes, bool unbiased = true, bool keep_dims = false);
Tensor variance(const Tensor& x);
/// √Σx²; the derivative at 0 is 0, as in PyTorch.
Tensor l2_norm(const Tensor& x, Axes axes, bool keep_dims = false);
Tensor l2_norm(const Tensor& x);

/// Return the index (i32) of the first extreme along `axis`; the result lacks that axis.
Tensor argmax(const Tensor& x, int axis = -1);
Tensor argmin(const Tensor& x, int axis = -1);

}  // namespace tandem
