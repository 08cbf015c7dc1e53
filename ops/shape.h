#pragma once
#include <algorithm>
#include <vector>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/ops/broadcast.h>

namespace tandem {

/// Elements begin, begin + step, … before `end` of an axis, as NumPy's x[begin:end:step]; 0 ≤ begin < end ≤
/// extent, and step ≥ 1 (`flip` reverses).
struct AxisRange {
  int axis;
  std::int64_t begin, end, step = 1;
  std::int64_t count() const { return (end - begin - 1) / step + 1; }  // requires begin < end
  bool operator==(const AxisRange&) const = default;
};

/// Zeros along an axis: `before` and `after` the elements, and `between` any two neighbors.
struct AxisPadding {
  int axis;
  std::int64_t before, after, between = 0;
  /// Returns the extent of the padded axis; `n` is the input's extent.
  std::int64_t extent(std::int64_t n) const {
    return before + n + std::max<std::int64_t>(n - 1, 0) * between + after;
  }
};

/// Returns the elements of `x` in another shape. One extent can be −1; it is computed from the number of
/// elements. Returns `x` itself if it has that shape. Throws Error if the numbers of elements differ.
Tensor reshape(const Tensor& x, Shape shape);
/// (d0, …, dk−1, dk, …) -> (d0, …, dk−1, dk·…): joins all axes from `axis` on into one.
Tensor flatten(const Tensor& x, int axis = 1);
/// Output axis i is input axis `perm[i]`. Throws Error if `perm` is not a permutation of the axes.
Tensor transpose(const Tensor& x, const std::vector<int>& perm);
/// Reverses `x` along `axes` (negative counts from the end).
Tensor flip(const Tensor& x, std::vector<int> axes);
/// Joins the inputs along `axis` (negative counts from the end). They have one dtype and equal other extents.
Tensor concat(const Tensors& inputs, int axis);
/// Elements begin, begin + step, … before `end` along `axis` (negative counts from the end); 0 ≤ begin < end
/// ≤ extent and step ≥ 1. Returns `x` itself if that is all of it.
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// Slices several axes at once, each named at most once: x[:, 1:9, ::2] is slice(x, {{1, 1, 9}, {2, 0,
/// x.size(2), 2}}).
Tensor slice(const Tensor& x, std::vector<AxisRange> ranges);
/// Cuts `x` into pieces of `sizes` along `axis`. Throws Error unless the sizes add up to the axis's extent.
Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis);
/// Joins inputs of one type along a new axis, axis `axis` of the result (negative counts from its end).
Tensor stack(const Tensors& inputs, int axis);
/// Adds zeros before and after the elements along `axis` (negative counts from the end).
Tensor pad(const Tensor& x, int axis, std::int64_t before, std::int64_t after);
/// Pads several axes at once, each named at most once; also adds zeros between elements.
Tensor pad(const Tensor& x, std::vector<AxisPadding> paddings);
/// Keeps the elements of x (…, rows, columns) on and below a diagonal, and sets the others to 0: element (r,
/// c) stays if c − r ≤ diagonal. `triu` keeps those on and above it.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
/// Returns begin, begin + step, … before `end`. Throws Error if the step is 0 or the dtype cannot hold a
/// number.
Tensor arange(double begin, double end, double step = 1, DType dtype = DType::i32);
/// Repeats `x` to `shape`; returns `x` itself if it has that shape. Throws Error if it does not broadcast.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

}  // namespace tandem

namespace tandem::engine {

/// A box of elements of the output, with the box of an input that is copied to it.
struct CopyRegion {
  int input;  ///< −1: zeros
  Shape extents;
  Strides from, to;  ///< in elements
  std::int64_t from_offset = 0, to_offset = 0;
};

/// An op that only moves elements. All such ops share one kernel, a strided copy of the boxes in `regions`.
class MovementOp : public Op {
 public:
  /// Returns the boxes that make up the output.
  virtual std::vector<CopyRegion> regions(TypesView inputs) const = 0;
  Precision precision() const override { return Precision::follows; }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
};

/// The same elements in another shape. A Program never computes it: output and input share their memory.
class ReshapeOp final : public MovementOp {
 public:
  explicit ReshapeOp(Shape shape) : shape(std::move(shape)) {}
  std::string_view name() const override { return "reshape"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView, TypesView) const override { return {}; }
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::view}}; }
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const Shape shape;
};

/// Output axis i is input axis `perm[i]`.
class TransposeOp final : public MovementOp {
 public:
  explicit TransposeOp(std::vector<int> perm) : perm(std::move(perm)) {}
  std::string_view name() const override { return "transpose"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const std::vector<int> perm;
};

/// The elements of `axes` (ascending) in reverse order.
class FlipOp final : public MovementOp {
 public:
  explicit FlipOp(std::vector<int> axes) : axes(std::move(axes)) {}
  std::string_view name() const override { return "flip"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const std::vector<int> axes;
};

/// Inputs one after another along `axis`.
class ConcatOp final : public MovementOp {
 public:
  explicit ConcatOp(int axis) : axis(axis) {}
  std::string_view name() const override { return "concat"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const int axis;
};

/// The elements that lie in every range; an axis without a range is taken whole.
class SliceOp final : public MovementOp {
 public:
  /// `ranges` has at most one range per axis, in the order of the axes.
  explicit SliceOp(std::vector<AxisRange> ranges) : ranges(std::move(ranges)) {}
  std::string_view name() const override { return "slice"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const std::vector<AxisRange> ranges;
};

/// The input with zeros around its elements and between them; this is the derivative of SliceOp.
class PadOp final : public MovementOp {
 public:
  /// `paddings` has at most one padding per axis, in the order of the axes.
  explicit PadOp(std::vector<AxisPadding> paddings) : paddings(std::move(paddings)) {}
  std::string_view name() const override { return "pad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const std::vector<AxisPadding> paddings;
};

/// The input repeated to `shape` by NumPy's broadcasting rule.
class BroadcastToOp final : public MovementOp {
 public:
  explicit BroadcastToOp(Shape shape) : shape(std::move(shape)) {}
  std::string_view name() const override { return "broadcast_to"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  std::vector<CopyRegion> regions(TypesView inputs) const override;

  const Shape shape;
};

/// For vmap rules: returns `x` if it has the model axis (`mapped`), otherwise `x` repeated for every model.
Tensor with_model_axis(const Tensor& x, bool mapped, std::int64_t models);
/// For vmap rules: returns the numbers that `axes` have behind the model axis.
std::vector<int> behind_model_axis(std::vector<int> axes);
/// Returns `axis` as 0 … rank−1; negative counts from the end. `added` is the number of axes that `of` will
/// get. Throws Error if there is no such axis.
int normalize_axis(int axis, const TensorType& of, int added = 0);

}  // namespace tandem::engine
