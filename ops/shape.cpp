#include <tandem/ops/shape.h>

#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem {
using namespace engine;
namespace {

std::int64_t& extent(Shape& shape, int axis) { return shape.at(static_cast<std::size_t>(axis)); }
std::int64_t extent(const Shape& shape, int axis) { return shape.at(static_cast<std::size_t>(axis)); }

void check_axis(int axis, const TensorType& type) {
  if (axis < 0 || axis >= type.rank())
    throw Error(fmt::format("axis {} does not exist in {}", axis, to_string(type)));
}

// Checks that ranges or paddings name existing axes of the input, each at most once.
template <class PerAxis> void check_axes(const std::vector<PerAxis>& parts, const TensorType& type) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_axis(parts[i].axis, type);
    if (i > 0 && parts[i].axis == parts[i - 1].axis)
      throw Error(fmt::format("axis {} is given twice", parts[i].axis));
  }
}

template <class PerAxis> std::vector<PerAxis> in_order(std::vector<PerAxis> parts, const TensorType& type) {
  for (PerAxis& part : parts) part.axis = normalize_axis(part.axis, type);
  std::sort(parts.begin(), parts.end(), [](const PerAxis& a, const PerAxis& b) { return a.axis < b.axis; });
  return parts;
}

template <class PerAxis> std::vector<PerAxis> behind_models(std::vector<PerAxis> parts) {
  for (PerAxis& part : parts) ++part.axis;
  return parts;
}

// Applies an op with one input and one output.
template <class Op, class... Args> Tensor apply_to(const Tensor& x, Args&&... args) {
  return apply_op1(std::make_shared<Op>(std::forward<Args>(args)...), {x});
}

}  // namespace

std::vector<int> engine::behind_model_axis(std::vector<int> axes) {
  for (int& axis : axes) ++axis;
  return axes;
}

int engine::normalize_axis(int axis, const TensorType& of, int added) {
  const int rank = of.rank() + added, a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) throw Error(fmt::format("there is no axis {} of {}", axis, to_string(of)));
  return a;
}

Work MovementOp::cost(TypesView inputs, TypesView outputs) const {
  // Every moved element is read once: a slice reads less than its input, a broadcast less than its output.
  const auto all = streaming_work(inputs, outputs, 0), written = streaming_work({}, outputs, 0);
  return {0, std::min(all.bytes, 2 * written.bytes)};
}

std::string ReshapeOp::attributes() const { return fmt::format("shape={}", to_string(shape)); }
Types ReshapeOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  if (x.elements() != element_count(shape))
    throw Error(fmt::format("{} does not reshape to {}: it has {} elements, not {}", to_string(x),
                            to_string(shape), x.elements(), element_count(shape)));
  return {{x.dtype, shape}};
}
Tensors ReshapeOp::vjp(const VjpArgs& args) const { return {reshape(args.grads[0], args.inputs[0].shape())}; }
Tensors ReshapeOp::vmap(const VmapArgs& args) const {
  return {reshape(args.inputs[0], with_models(shape, args.models))};
}
std::vector<CopyRegion> ReshapeOp::regions(TypesView inputs) const {
  return {{0, {inputs[0].elements()}, {1}, {1}}};
}

std::string TransposeOp::attributes() const { return fmt::format("perm={}", fmt::join(perm, ",")); }
Types TransposeOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  std::vector<int> axes(x.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (!std::ranges::is_permutation(perm, axes))
    throw Error(
        fmt::format("[{}] must be a permutation of the axes of {}", fmt::join(perm, ", "), to_string(x)));
  TensorType out{x.dtype, {}};
  for (int axis : perm) out.shape.push_back(extent(x.shape, axis));
  return {out};
}
Tensors TransposeOp::vjp(const VjpArgs& args) const {
  std::vector<int> inverse(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<std::size_t>(perm[i])] = static_cast<int>(i);
  return {transpose(args.grads[0], inverse)};
}
Tensors TransposeOp::vmap(const VmapArgs& args) const {
  std::vector<int> shifted{0};
  for (int axis : perm) shifted.push_back(axis + 1);
  return {transpose(args.inputs[0], shifted)};
}
std::vector<CopyRegion> TransposeOp::regions(TypesView inputs) const {
  const Shape out = infer(inputs)[0].shape;
  const Strides dense = dense_strides(inputs[0].shape);
  Strides from;
  for (int axis : perm) from.push_back(dense[static_cast<std::size_t>(axis)]);
  return {{0, out, from, dense_strides(out)}};
}

std::string FlipOp::attributes() const { return fmt::format("axes={}", fmt::join(axes, ",")); }
Types FlipOp::infer(TypesView inputs) const {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    check_axis(axes[i], only_input(inputs));
    if (i > 0 && axes[i] == axes[i - 1]) throw Error(fmt::format("axis {} is given twice", axes[i]));
  }
  return {only_input(inputs)};
}
Tensors FlipOp::vjp(const VjpArgs& args) const { return {flip(args.grads[0], axes)}; }
Tensors FlipOp::vmap(const VmapArgs& args) const { return {flip(args.inputs[0], behind_model_axis(axes))}; }
std::vector<CopyRegion> FlipOp::regions(TypesView inputs) const {
  const Shape& shape = inputs[0].shape;
  CopyRegion region{0, shape, dense_strides(shape), dense_strides(shape)};
  for (int axis : axes) {
    std::int64_t& stride = region.from[static_cast<std::size_t>(axis)];
    region.from_offset += (extent(shape, axis) - 1) * stride;
    stride = -stride;
  }
  return {region};
}

std::string ConcatOp::attributes() const { return fmt::format("axis={}", axis); }
Types ConcatOp::infer(TypesView inputs) const {
  if (inputs.empty()) throw Error("takes at least one input");
  TensorType out = inputs[0];
  check_axis(axis, out);
  extent(out.shape, axis) = 0;
  for (const auto& t : inputs) {
    TensorType rest = t;
    if (t.rank() == out.rank()) extent(rest.shape, axis) = extent(out.shape, axis);
    if (rest != out)
      throw Error(fmt::format("{} and {} must agree in dtype and in all axes but {}", to_string(inputs[0]),
                              to_string(t), axis));
    extent(out.shape, axis) += extent(t.shape, axis);
  }
  return {out};
}
Tensors ConcatOp::vjp(const VjpArgs& args) const {
  Tensors grads;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    const std::int64_t n = extent(args.inputs[i].shape(), axis);
    grads.push_back(args.needed[i] && n > 0 ? slice(args.grads[0], axis, begin, begin + n) : Tensor());
    begin += n;
  }
  return grads;
}
Tensors ConcatOp::vmap(const VmapArgs& args) const {
  Tensors inputs;
  for (std::size_t i = 0; i < args.inputs.size(); ++i)
    inputs.push_back(with_model_axis(args.inputs[i], args.mapped[i], args.models));
  return {concat(inputs, axis + 1)};
}
std::vector<CopyRegion> ConcatOp::regions(TypesView inputs) const {
  const Strides to = dense_strides(infer(inputs)[0].shape);
  std::vector<CopyRegion> regions;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    regions.push_back({static_cast<int>(i), shape, dense_strides(shape), to, 0,
                       begin * to[static_cast<std::size_t>(axis)]});
    begin += extent(shape, axis);
  }
  return regions;
}

std::string SliceOp::attributes() const {
  std::string text;
  for (const AxisRange& r : ranges)
    text += fmt::format("{}axis={} begin={} end={}{}", text.empty() ? "" : " ", r.axis, r.begin, r.end,
                        r.step == 1 ? "" : fmt::format(" step={}", r.step));
  return text;
}
Types SliceOp::infer(TypesView inputs) const {
  TensorType out = only_input(inputs);
  check_axes(ranges, out);
  for (const AxisRange& r : ranges) {
    if (r.step < 1)
      throw Error(
          fmt::format("a slice in steps of {} on axis {}: a step must be 1 or more; flip() reverses an axis",
                      r.step, r.axis));
    if (r.begin < 0 || r.begin >= r.end || r.end > extent(out.shape, r.axis))
      throw Error(
          fmt::format("a slice [{}, {}) on axis {} of {}: it must hold an element and lie within the axis",
                      r.begin, r.end, r.axis, to_string(inputs[0])));
    extent(out.shape, r.axis) = r.count();
  }
  return {out};
}
Tensors SliceOp::vjp(const VjpArgs& args) const {
  std::vector<AxisPadding> paddings;
  for (const AxisRange& r : ranges) {
    const std::int64_t step = r.count() > 1 ? r.step : 1, last = r.begin + (r.count() - 1) * step;
    paddings.push_back({r.axis, r.begin, extent(args.inputs[0].shape(), r.axis) - last - 1, step - 1});
  }
  return {pad(args.grads[0], paddings)};
}
Tensors SliceOp::vmap(const VmapArgs& args) const { return {slice(args.inputs[0], behind_models(ranges))}; }
std::vector<CopyRegion> SliceOp::regions(TypesView inputs) const {
  const Shape out = infer(inputs)[0].shape;
  CopyRegion region{0, out, dense_strides(inputs[0].shape), dense_strides(out)};
  for (const AxisRange& r : ranges) {
    std::int64_t& stride = region.from[static_cast<std::size_t>(r.axis)];
    region.from_offset += r.begin * stride;
    if (r.count() > 1) stride *= r.step;  // one element needs no stride, and its step could overflow
  }
  return {region};
}

std::string PadOp::attributes() const {
  std::string text;
  for (const AxisPadding& p : paddings)
    text += fmt::format("{}axis={} before={} after={}{}", text.empty() ? "" : " ", p.axis, p.before, p.after,
                        p.between == 0 ? "" : fmt::format(" between={}", p.between));
  return text;
}
Types PadOp::infer(TypesView inputs) const {
  TensorType out = only_input(inputs);
  check_axes(paddings, out);
  for (const AxisPadding& p : paddings) {
    if (p.before < 0 || p.after < 0 || p.between < 0)
      throw Error(
          fmt::format("cannot pad axis {} by {} before, {} after and {} between elements: no number "
                      "can be negative",
                      p.axis, p.before, p.after, p.between));
    extent(out.shape, p.axis) = p.extent(extent(out.shape, p.axis));
  }
  return {out};
}
Tensors PadOp::vjp(const VjpArgs& args) const {
  if (args.inputs[0].elements() == 0) return {Tensor()};
  std::vector<AxisRange> ranges;
  for (const AxisPadding& p : paddings) {
    const std::int64_t n = extent(args.inputs[0].shape(), p.axis), step = p.between + 1;
    ranges.push_back({p.axis, p.before, p.before + (n - 1) * step + 1, step});
  }
  return {slice(args.grads[0], ranges)};
}
Tensors PadOp::vmap(const VmapArgs& args) const { return {pad(args.inputs[0], behind_models(paddings))}; }
std::vector<CopyRegion> PadOp::regions(TypesView inputs) const {
  const Shape out = infer(inputs)[0].shape;
  const Strides dense = dense_strides(out);
  std::vector<CopyRegion> regions;
  CopyRegion elements{0, inputs[0].shape, dense_strides(inputs[0].shape), dense};
  // For each axis in turn, add the boxes of zeros along it and take them off the rest. The elements of the
  // input fill the rest that remains after the last axis.
  Shape left = out;
  Strides to = dense;
  std::int64_t offset = 0;
  const auto zeros = [&](int axis, std::int64_t begin, std::int64_t count, std::int64_t stride) {
    Shape box = left;
    extent(box, axis) = count;
    Strides steps = to;
    steps[static_cast<std::size_t>(axis)] = stride;
    if (count > 0)
      regions.push_back({-1, box, Strides(box.size(), 0), steps, 0,
                         offset + begin * dense[static_cast<std::size_t>(axis)]});
  };
  for (const AxisPadding& p : paddings) {
    const auto axis = static_cast<std::size_t>(p.axis);
    const std::int64_t n = inputs[0].shape[axis], stride = dense[axis], step = (p.between + 1) * stride;
    zeros(p.axis, 0, p.before, stride);
    zeros(p.axis, extent(out, p.axis) - p.after, p.after, stride);
    for (std::int64_t i = 1; n > 1 && i <= p.between; ++i) zeros(p.axis, p.before + i, n - 1, step);
    left[axis] = n;
    to[axis] = step;
    offset += p.before * stride;
  }
  elements.to = to;
  elements.to_offset = offset;
  regions.push_back(elements);
  return regions;
}

std::string BroadcastToOp::attributes() const { return fmt::format("shape={}", to_string(shape)); }
Types BroadcastToOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  const TensorType target{x.dtype, shape};
  if (broadcast_shape(std::vector{x, target}) != shape)
    throw Error(fmt::format("{} does not broadcast to {}", to_string(x), to_string(shape)));
  return {target};
}
Tensors BroadcastToOp::vjp(const VjpArgs& args) const {
  return {sum_to(args.grads[0], args.inputs[0].shape())};
}
Tensors BroadcastToOp::vmap(const VmapArgs& args) const {
  Shape aligned = args.inputs[0].shape();  // (M, …) -> (M, 1, …, 1, …)
  aligned.insert(aligned.begin() + 1, shape.size() + 1 - aligned.size(), 1);
  return {broadcast_to(reshape(args.inputs[0], aligned), with_models(shape, args.models))};
}
std::vector<CopyRegion> BroadcastToOp::regions(TypesView inputs) const {
  return {{0, shape, broadcast_strides(inputs[0].shape, shape), dense_strides(shape)}};
}

Tensor reshape(const Tensor& x, Shape shape) {
  if (const auto open = std::find(shape.begin(), shape.end(), -1); open != shape.end()) {
    const Shape wanted = shape;
    if (std::count(shape.begin(), shape.end(), -1) > 1)
      throw Error(fmt::format("reshape to {}: only one extent may be -1", to_string(wanted)));
    *open = 1;
    const std::int64_t rest = element_count(shape);
    if (rest == 0) throw Error("reshape: with an extent of 0, an extent of −1 is undefined; give a number");
    if (x.elements() % rest != 0)
      throw Error(fmt::format("{} does not reshape to {}: {} elements are no multiple of {}",
                              to_string(x.type()), to_string(wanted), x.elements(), rest));
    *open = x.elements() / rest;
  }
  if (shape == x.shape()) return x;
  return apply_to<ReshapeOp>(x, std::move(shape));
}
Tensor flatten(const Tensor& x, int axis) {
  const auto split = x.shape().begin() + normalize_axis(axis, x.type());
  Shape shape(x.shape().begin(), split);
  shape.push_back(element_count(Shape(split, x.shape().end())));
  return reshape(x, std::move(shape));
}
Tensor transpose(const Tensor& x, const std::vector<int>& perm) { return apply_to<TransposeOp>(x, perm); }
Tensor flip(const Tensor& x, std::vector<int> axes) {
  for (int& axis : axes) axis = normalize_axis(axis, x.type());
  std::sort(axes.begin(), axes.end());
  return apply_to<FlipOp>(x, std::move(axes));
}
Tensor concat(const Tensors& inputs, int axis) {
  if (inputs.empty()) throw Error("concat: takes at least one input");
  return apply_op1(std::make_shared<ConcatOp>(normalize_axis(axis, inputs[0].type())), inputs);
}
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  return slice(x, {{axis, begin, end, step}});
}
Tensor slice(const Tensor& x, std::vector<AxisRange> ranges) {
  ranges = in_order(std::move(ranges), x.type());
  const auto whole = [&](const AxisRange& r) { return r == AxisRange{r.axis, 0, extent(x.shape(), r.axis)}; };
  if (std::all_of(ranges.begin(), ranges.end(), whole)) return x;
  return apply_to<SliceOp>(x, std::move(ranges));
}
Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis) {
  axis = normalize_axis(axis, x.type());
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (total != extent(x.shape(), axis))
    throw Error(fmt::format("split: sizes [{}] add up to {}, but axis {} of {} has extent {}",
                            fmt::join(sizes, ", "), total, axis, to_string(x.type()),
                            extent(x.shape(), axis)));
  Tensors pieces;
  std::int64_t begin = 0;
  for (std::int64_t size : sizes) {
    pieces.push_back(slice(x, axis, begin, begin + size));
    begin += size;
  }
  return pieces;
}
Tensor stack(const Tensors& inputs, int axis) {
  if (inputs.empty()) throw Error("stack: takes at least one input");
  Tensors layers;
  for (const Tensor& x : inputs) {
    if (x.type() != inputs[0].type())
      throw Error(fmt::format("stack: {} and {} must be the same type", to_string(inputs[0].type()),
                              to_string(x.type())));
    Shape shape = x.shape();
    shape.insert(shape.begin() + normalize_axis(axis, x.type(), 1), 1);
    layers.push_back(reshape(x, shape));
  }
  return concat(layers, normalize_axis(axis, inputs[0].type(), 1));
}
Tensor pad(const Tensor& x, int axis, std::int64_t before, std::int64_t after) {
  return pad(x, {{axis, before, after}});
}
Tensor pad(const Tensor& x, std::vector<AxisPadding> paddings) {
  paddings = in_order(std::move(paddings), x.type());
  const auto nothing = [](const AxisPadding& p) { return p.before == 0 && p.after == 0 && p.between == 0; };
  if (std::all_of(paddings.begin(), paddings.end(), nothing)) return x;
  return apply_to<PadOp>(x, std::move(paddings));
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return shape == x.shape() ? x : apply_to<BroadcastToOp>(x, shape);
}

Tensor engine::with_model_axis(const Tensor& x, bool mapped, std::int64_t models) {
  return mapped ? x : broadcast_to(x, with_models(x.shape(), models));
}

namespace {
// Keeps the elements of the last two axes for which keep(column − row) holds.
template <class F> Tensor triangle(const char* name, const Tensor& x, const F& keep) {
  if (x.type().rank() < 2)
    throw Error(fmt::format("{}: {} has no rows and columns", name, to_string(x.type())));
  const std::int64_t rows = x.size(-2), columns = x.size(-1);
  Tensor mask = Tensor::empty({DType::b8, {rows, columns}});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      store_element(DType::b8, mask.data(), r * columns + c, keep(c - r) ? 1 : 0);
  return where(mask, x, 0.0);
}
}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal) {
  return triangle("tril", x, [=](std::int64_t above) { return above <= diagonal; });
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return triangle("triu", x, [=](std::int64_t above) { return above >= diagonal; });
}
Tensor arange(double begin, double end, double step, DType dtype) {
  if (step == 0 || !std::isfinite((end - begin) / step))
    throw Error(
        fmt::format("arange from {} to {} by {}: the step must not be 0, and all finite", begin, end, step));
  const double count = std::max(std::ceil((end - begin) / step), 0.0);
  if (count >= 0x1p31)
    throw Error(fmt::format("arange from {} to {} by {}: {:.3g} elements are more than 2^31 - 1", begin, end,
                            step, count));
  std::vector<double> values;
  for (double i = 0; i < count; ++i) values.push_back(begin + i * step);
  const auto size = std::ssize(values);
  return Tensor::from(values, {size}, dtype);
}

}  // namespace tandem
