#include <tandem/ops/reduce.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

void check_axes(const std::vector<int>& axes, const TensorType& x) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] < 0 || axes[i] >= x.rank() || (i > 0 && axes[i] <= axes[i - 1]))
      throw Error(fmt::format("[{}] are not ascending axes of {}", fmt::join(axes, ", "), to_string(x)));
}

bool is_extreme(Reduction kind) { return kind == Reduction::max || kind == Reduction::min; }

void check_extreme_exists(Reduction kind, const std::vector<int>& axes, const TensorType& x) {
  for (int a : axes)
    if (x.shape[static_cast<std::size_t>(a)] == 0)
      throw Error(fmt::format("there is no {} over axes [{}] of {}: an extent is 0", name_of(kind),
                              fmt::join(axes, ", "), to_string(x)));
}

Shape reduced(const Shape& shape, const std::vector<int>& axes, bool keep_dims) {
  Shape out;
  for (int a = 0; a < static_cast<int>(shape.size()); ++a)
    if (!contains(axes, a))
      out.push_back(shape[static_cast<std::size_t>(a)]);
    else if (keep_dims)
      out.push_back(1);
  return out;
}

DType reduced_dtype(Reduction kind, DType dtype) {
  if (kind == Reduction::mean && !is_floating(dtype))
    throw Error(fmt::format("mean does not take {}: cast to a floating dtype first", name_of(dtype)));
  return kind == Reduction::sum && (dtype == DType::u8 || dtype == DType::b8) ? DType::i32 : dtype;
}

Tensor reduce(Reduction kind, const Tensor& x, std::vector<int> axes, bool keep_dims) {
  for (int& a : axes) a = normalize_axis(a, x.type());
  std::sort(axes.begin(), axes.end());
  return apply_op1(std::make_shared<ReduceOp>(kind, std::move(axes), keep_dims), {x});
}

Tensor arg_extreme(Reduction kind, const Tensor& x, int axis) {
  return apply_op1(std::make_shared<ArgExtremeOp>(kind, normalize_axis(axis, x.type())), {x});
}

std::vector<int> all_axes(const Tensor& x) {
  std::vector<int> axes(x.shape().size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace

std::string_view engine::name_of(Reduction kind) {
  switch (kind) {
    case Reduction::sum: return "sum";
    case Reduction::mean: return "mean";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
  }
  return "?";
}

std::string ReduceOp::attributes() const {
  return fmt::format("{} axes={} keep_dims={}", name_of(kind), fmt::join(axes, ","), int{keep_dims});
}
Types ReduceOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  check_axes(axes, x);
  if (is_extreme(kind)) check_extreme_exists(kind, axes, x);
  return {{reduced_dtype(kind, x.dtype), reduced(x.shape, axes, keep_dims)}};
}
Tensors ReduceOp::vjp(const VjpArgs& args) const {
  const Tensor& x = args.inputs[0];
  if (!is_floating(x.dtype())) return {Tensor()};
  const Shape kept = reduced(x.shape(), axes, true);
  Tensor g = reshape(args.grads[0], kept);
  if (kind == Reduction::mean)
    g = scale(g, static_cast<double>(element_count(kept)) / static_cast<double>(x.elements()));
  if (!is_extreme(kind)) return {broadcast_to(g, x.shape())};
  const Tensor first = apply_op1(std::make_shared<FirstExtremeOp>(kind, axes), {x});
  return {where(first, g, 0)};
}
Tensors ReduceOp::vmap(const VmapArgs& args) const {
  return apply_op(std::make_shared<ReduceOp>(kind, behind_model_axis(axes), keep_dims), args.inputs);
}

std::string FirstExtremeOp::attributes() const {
  return fmt::format("{} axes={}", name_of(kind), fmt::join(axes, ","));
}
Types FirstExtremeOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  check_axes(axes, x);
  check_extreme_exists(kind, axes, x);
  return {{DType::b8, x.shape}};
}
Tensors FirstExtremeOp::vjp(const VjpArgs&) const { return {Tensor()}; }
Tensors FirstExtremeOp::vmap(const VmapArgs& args) const {
  return apply_op(std::make_shared<FirstExtremeOp>(kind, behind_model_axis(axes)), args.inputs);
}

std::string ArgExtremeOp::attributes() const { return fmt::format("{} axis={}", name_of(kind), axis); }
Types ArgExtremeOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  check_axes({axis}, x);
  check_extreme_exists(kind, {axis}, x);
  return {{DType::i32, reduced(x.shape, {axis}, false)}};
}
Tensors ArgExtremeOp::vjp(const VjpArgs&) const { return {Tensor()}; }
Tensors ArgExtremeOp::vmap(const VmapArgs& args) const {
  return apply_op(std::make_shared<ArgExtremeOp>(kind, axis + 1), args.inputs);
}

Tensor sum(const Tensor& x, Axes axes, bool keep_dims) {
  return reduce(Reduction::sum, x, std::move(axes.list), keep_dims);
}
Tensor sum(const Tensor& x) { return sum(x, all_axes(x)); }
Tensor mean(const Tensor& x, Axes axes, bool keep_dims) {
  return reduce(Reduction::mean, x, std::move(axes.list), keep_dims);
}
Tensor mean(const Tensor& x) { return mean(x, all_axes(x)); }
Tensor max(const Tensor& x, Axes axes, bool keep_dims) {
  return reduce(Reduction::max, x, std::move(axes.list), keep_dims);
}
Tensor max(const Tensor& x) { return max(x, all_axes(x)); }

Tensor min(const Tensor& x, Axes axes, bool keep_dims) {
  return reduce(Reduction::min, x, std::move(axes.list), keep_dims);
}
Tensor min(const Tensor& x) { return min(x, all_axes(x)); }

Tensor variance(const Tensor& x, Axes axes, bool unbiased, bool keep_dims) {
  using Code = PointwiseCode;
  const PointwiseExpression squared_distance{
      {Code::input, 0}, {Code::input, 1}, {Code::sub, 0, 1}, {Code::mul, 2, 2}};
  const Tensor average = mean(x, axes, true);
  const double count = static_cast<double>(x.elements()) / static_cast<double>(average.elements());
  if (unbiased && count <= 1)
    throw Error(fmt::format(
        "the unbiased variance of {} needs more than one element; reduce more, or set unbiased = false",
        to_string(x.type())));
  const Tensor squares = apply_op1(std::make_shared<PointwiseOp>(squared_distance, x.dtype()), {x, average});
  return sum(squares, std::move(axes), keep_dims) / (count - (unbiased ? 1 : 0));
}

Tensor l2_norm(const Tensor& x, Axes axes, bool keep_dims) {
  using Code = PointwiseCode;
  // If the sum is 0, take the root of 1 and replace it by 0: the derivative of the root stays finite, and
  // `where` replaces it by 0.
  const PointwiseExpression root{{Code::input, 0},       {Code::constant, -1, -1, -1, 0},
                                 {Code::eq, 0, 1},       {Code::constant, -1, -1, -1, 1},
                                 {Code::where, 2, 3, 0}, {Code::sqrt, 4},
                                 {Code::where, 2, 1, 5}};
  return apply_op1(std::make_shared<PointwiseOp>(root, x.dtype()),
                   {sum(pow(x, 2), std::move(axes), keep_dims)});
}

Tensor variance(const Tensor& x) { return variance(x, all_axes(x)); }
Tensor l2_norm(const Tensor& x) { return l2_norm(x, all_axes(x)); }

Tensor argmax(const Tensor& x, int axis) { return arg_extreme(Reduction::max, x, axis); }
Tensor argmin(const Tensor& x, int axis) { return arg_extreme(Reduction::min, x, axis); }

Tensor engine::sum_to(const Tensor& x, const Shape& shape) {
  if (shape == x.shape()) return x;
  if (broadcast_shape(std::vector{x.type(), TensorType{x.dtype(), shape}}) != x.shape())
    throw Error(fmt::format("sum_to: {} does not broadcast to {}", to_string(shape), to_string(x.type())));
  const int leading = x.type().rank() - static_cast<int>(shape.size());
  std::vector<int> axes;
  for (int a = 0; a < x.type().rank(); ++a)
    if (a < leading || (shape[static_cast<std::size_t>(a - leading)] == 1 && x.size(a) != 1))
      axes.push_back(a);
  if (axes.empty()) return x;
  return reshape(sum(x, axes, leading == 0), shape);
}

}  // namespace tandem
