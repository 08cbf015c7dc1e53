#pragma once
#include <algorithm>
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/broadcast.h>

namespace tandem::engine {

/// A box of elements of the output, copied from an input.
struct CopyRegion {
  int input;  ///< −1: zeros
  Shape extents;
  Strides from, to;  ///< in elements
  std::int64_t from_offset = 0, to_offset = 0;
};

/// An op that only moves elements: its kernels are one strided copy, fed by `regions`.
class MovementOp : public Op {
 public:
  /// Boxes that make up the output.
  virtual std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const = 0;
  Precision precision() const override { return Precision::follows; }
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }
};

/// The same elements under another shape. Never computed in a Program: the output is the input's memory.
class ReshapeOp final : public MovementOp {
 public:
  explicit ReshapeOp(Shape shape) : shape(std::move(shape)) {}
  std::string_view name() const override { return "reshape"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {{0, 0, Alias::view}}; }
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const Shape shape;
};

/// Output axis i is input axis `perm[i]`.
class TransposeOp final : public MovementOp {
 public:
  explicit TransposeOp(std::vector<int> perm) : perm(std::move(perm)) {}
  std::string_view name() const override { return "transpose"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const std::vector<int> perm;
};

/// The elements of `axes` (ascending) in reverse order.
class FlipOp final : public MovementOp {
 public:
  explicit FlipOp(std::vector<int> axes) : axes(std::move(axes)) {}
  std::string_view name() const override { return "flip"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const std::vector<int> axes;
};

/// Inputs one after another along `axis`.
class ConcatOp final : public MovementOp {
 public:
  explicit ConcatOp(int axis) : axis(axis) {}
  std::string_view name() const override { return "concat"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const int axis;
};

}  // namespace tandem::engine

namespace tandem {

/// Elements begin, begin + step, … before `end` of an axis, as x[begin:end:step] elsewhere; 0 ≤ begin < end ≤
/// extent, and step ≥ 1 (`flip` reverses).
struct AxisRange {
  int axis;
  std::int64_t begin, end, step = 1;
  std::int64_t count() const { return (end - begin - 1) / step + 1; }  // of a range that holds an element
  bool operator==(const AxisRange&) const = default;
};

}  // namespace tandem

namespace tandem::engine {

/// The elements that lie in every range; axes without one are taken whole.
class SliceOp final : public MovementOp {
 public:
  /// At most one range an axis, in the order of the axes.
  explicit SliceOp(std::vector<AxisRange> ranges) : ranges(std::move(ranges)) {}
  std::string_view name() const override { return "slice"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const std::vector<AxisRange> ranges;
};

}  // namespace tandem::engine

namespace tandem {

/// Zeros along an axis: `before` and `after` the elements, and `between` any two neighbors.
struct AxisPadding {
  int axis;
  std::int64_t before, after, between = 0;
  /// Of the padded axis, `n` being the input's.
  std::int64_t extent(std::int64_t n) const {
    return before + n + std::max<std::int64_t>(n - 1, 0) * between + after;
  }
};

}  // namespace tandem

namespace tandem::engine {

/// The input with zeros around its elements, and between them: the derivative of Slice.
class PadOp final : public MovementOp {
 public:
  /// At most one padding an axis, in the order of the axes.
  explicit PadOp(std::vector<AxisPadding> paddings) : paddings(std::move(paddings)) {}
  std::string_view name() const override { return "pad"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const std::vector<AxisPadding> paddings;
};

/// The input repeated to `shape` by the broadcasting rule.
class BroadcastToOp final : public MovementOp {
 public:
  explicit BroadcastToOp(Shape shape) : shape(std::move(shape)) {}
  std::string_view name() const override { return "broadcast_to"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(std::span<const TensorType> inputs) const override;

  const Shape shape;
};

}  // namespace tandem::engine

namespace tandem {

/// One extent may be −1: what is left. `x` itself where the shape is its own. Throws Error where the numbers
/// of elements differ.
Tensor reshape(const Tensor& x, Shape shape);
/// (d0, …, dk−1, dk, …) -> (d0, …, dk−1, dk·…): axes from `axis` on become one.
Tensor flatten(const Tensor& x, int axis = 1);
/// Throws Error where `perm` is not a permutation of the axes.
Tensor transpose(const Tensor& x, const std::vector<int>& perm);
/// Reversed along `axes` (negative counts from the end).
Tensor flip(const Tensor& x, std::vector<int> axes);
/// One dtype, equal shapes but for `axis` (negative counts from the end).
Tensor concat(const Tensors& inputs, int axis);
/// Elements begin, begin + step, … before `end` along `axis` (negative counts from the end); 0 ≤ begin < end
/// ≤ extent and step ≥ 1. `x` itself where that is all of it.
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// The same along several axes at once, each named at most once: x[:, 1:9, ::2] is slice(x, {{1, 1, 9}, {2,
/// 0, x.size(2), 2}}).
Tensor slice(const Tensor& x, std::vector<AxisRange> ranges);
/// Pieces of `sizes` along `axis`, which they must fill.
Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis);
/// Side by side along a new axis: number `axis` of the result (negative counts from its end).
Tensor stack(const Tensors& inputs, int axis);
/// Zeros before and after the elements along `axis` (negative counts from the end).
Tensor pad(const Tensor& x, int axis, std::int64_t before, std::int64_t after);
/// The same along several axes at once, each named at most once, and between elements.
Tensor pad(const Tensor& x, std::vector<AxisPadding> paddings);
/// `x` itself where the shape is its own. Throws Error where `x` does not broadcast to `shape`.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

}  // namespace tandem

namespace tandem::engine {

/// For batching rules: `x` with the model axis, repeated where it is shared by the models.
Tensor with_model_axis(const Tensor& x, bool batched, std::int64_t models);
/// `axis` as 0 … rank−1; negative counts from the end. Throws Error where there is no such axis.
int normalize_axis(int axis, int rank);

}  // namespace tandem::engine
