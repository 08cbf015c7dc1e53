#include <tandem/ops/index.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/index_check.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

void check_index_dtype(const TensorType& index) {
  if (index.dtype != DType::i32)
    throw Error(fmt::format("indices must be i32, i64 or u8, not {}; cast them", to_string(index)));
}

// Returns `shape` with another extent for `axis`.
Shape resized(Shape shape, int axis, std::int64_t extent) {
  if (axis < 0 || axis >= static_cast<int>(shape.size()))
    throw Error(fmt::format("axis {} does not exist in {}", axis, to_string(shape)));
  shape[static_cast<std::size_t>(axis)] = extent;
  return shape;
}

void check_beside_axis(const TensorType& x, const TensorType& index, int axis) {
  check_index_dtype(index);
  if (resized(x.shape, axis, 0) != resized(index.shape, axis, 0))
    throw Error(fmt::format("{} and its indices {} must agree in all axes but {}", to_string(x),
                            to_string(index), axis));
}

// The operands of an op that adds the gradient of the result, by index, to what later readers gave.
Tensors adding(const VjpArgs& args) {
  Tensors operands{args.grads[0], args.inputs[1]};
  if (Tensor onto = take_sum(args, 0)) operands.push_back(std::move(onto));
  return operands;
}

// What an op that adds by index reads and writes: a third operand is changed in place.
Work adding_work(TypesView inputs, TypesView outputs) {
  if (inputs.size() < 3) return streaming_work(inputs, outputs, 1);
  Work work = streaming_work(inputs.first(2), {}, 0);
  work.flops = static_cast<double>(inputs[0].elements());
  work.bytes += 2 * static_cast<double>(inputs[0].bytes());
  return work;
}
std::vector<Alias> adding_aliases(TypesView inputs) {
  return inputs.size() < 3 ? std::vector<Alias>() : std::vector<Alias>{{0, 2, Alias::in_place}};
}

TensorType checked_onto(TypesView inputs, TensorType result) {
  if (inputs.size() == 3 && inputs[2] != result)
    throw Error(fmt::format("adds to {}, not to {}", to_string(result), to_string(inputs[2])));
  return result;
}
void require_two_or_three(TypesView inputs) {
  if (inputs.size() != 3) require_inputs(inputs, 2);
}

}  // namespace

std::string engine::place_in(const Shape& shape, std::int64_t element) {
  if (shape.empty()) return "";
  std::vector<std::int64_t> places(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    places[axis] = element % shape[axis];
  if (places.size() == 1) return fmt::format(" of sample {}", places[0]);
  if (places.size() == 2) return fmt::format(" of sample {}, position {},", places[0], places[1]);
  return fmt::format(" at ({})", fmt::join(places, ", "));
}

void IndexCheck::operator()(const std::int32_t* indices) const {
  // As unsigned numbers, negative indices are larger than all others. A loop without an early exit
  // vectorizes.
  const std::int64_t count = element_count(shape_);
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<std::uint32_t>(indices[i]));
  if (count == 0 || largest < static_cast<std::uint64_t>(extent_)) return;
  for (std::int64_t i = 0; i < count; ++i)
    if (indices[i] < 0 || indices[i] >= extent_)
      throw Error(fmt::format("index {}{} is outside the range 0 to {}", indices[i], place_in(shape_, i),
                              extent_ - 1));
}

std::string GatherOp::attributes() const { return fmt::format("axis={}", axis); }
Types GatherOp::infer(TypesView inputs) const {
  require_inputs(inputs, 2);
  check_beside_axis(inputs[0], inputs[1], axis);
  return {{inputs[0].dtype, inputs[1].shape}};
}
Tensors GatherOp::vjp(const VjpArgs& args) const {
  const auto adjoint = std::make_shared<ScatterAddOp>(axis, args.inputs[0].size(axis));
  return {apply_op1(adjoint, adding(args)), Tensor()};
}
Work GatherOp::cost(TypesView inputs, TypesView outputs) const {
  return streaming_work(inputs.subspan(1), Types{outputs[0], outputs[0]},
                        0);  // reads as many bytes as it writes
}

std::string ScatterAddOp::attributes() const { return fmt::format("axis={} extent={}", axis, extent); }
Types ScatterAddOp::infer(TypesView inputs) const {
  require_two_or_three(inputs);
  check_beside_axis(inputs[0], inputs[1], axis);
  if (inputs[0].shape != inputs[1].shape)
    throw Error(fmt::format("the values {} and indices {} must have the same shape", to_string(inputs[0]),
                            to_string(inputs[1])));
  return {checked_onto(inputs, {inputs[0].dtype, resized(inputs[0].shape, axis, extent)})};
}
Tensors ScatterAddOp::vjp(const VjpArgs& args) const {
  Tensors gradients{gather(args.grads[0], axis, args.inputs[1]), Tensor(), args.grads[0]};
  gradients.resize(args.inputs.size());
  return gradients;
}
Work ScatterAddOp::cost(TypesView inputs, TypesView outputs) const { return adding_work(inputs, outputs); }
std::vector<Alias> ScatterAddOp::may_alias(TypesView inputs) const { return adding_aliases(inputs); }

Types EmbeddingOp::infer(TypesView inputs) const {
  require_inputs(inputs, 2);
  check_index_dtype(inputs[1]);
  if (inputs[0].rank() == 0) throw Error("the table is a scalar; it needs an axis of rows");
  Shape shape = inputs[1].shape;
  shape.insert(shape.end(), inputs[0].shape.begin() + 1, inputs[0].shape.end());
  return {{inputs[0].dtype, shape}};
}
Tensors EmbeddingOp::vjp(const VjpArgs& args) const {
  const auto adjoint = std::make_shared<EmbeddingGradOp>(args.inputs[0].size(0));
  return {apply_op1(adjoint, adding(args)), Tensor()};
}
Work EmbeddingOp::cost(TypesView inputs, TypesView outputs) const {
  return streaming_work(inputs.subspan(1), Types{outputs[0], outputs[0]}, 0);
}

std::string EmbeddingGradOp::attributes() const { return fmt::format("count={}", count); }
Types EmbeddingGradOp::infer(TypesView inputs) const {
  require_two_or_three(inputs);
  const Shape &rows = inputs[0].shape, &ids = inputs[1].shape;
  check_index_dtype(inputs[1]);
  if (rows.size() < ids.size() || !std::equal(ids.begin(), ids.end(), rows.begin()))
    throw Error(fmt::format("the shape of the rows {} must begin with that of the ids {}",
                            to_string(inputs[0]), to_string(inputs[1])));
  Shape shape{count};
  shape.insert(shape.end(), rows.begin() + static_cast<std::ptrdiff_t>(ids.size()), rows.end());
  return {checked_onto(inputs, {inputs[0].dtype, shape})};
}
Tensors EmbeddingGradOp::vjp(const VjpArgs& args) const {
  Tensors gradients{embedding(args.grads[0], args.inputs[1]), Tensor(), args.grads[0]};
  gradients.resize(args.inputs.size());
  return gradients;
}
Work EmbeddingGradOp::cost(TypesView inputs, TypesView outputs) const { return adding_work(inputs, outputs); }
std::vector<Alias> EmbeddingGradOp::may_alias(TypesView inputs) const { return adding_aliases(inputs); }

std::string OneHotOp::attributes() const { return fmt::format("classes={} {}", classes, name_of(dtype)); }
Types OneHotOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  check_index_dtype(inputs[0]);
  if (classes < 1) throw Error(fmt::format("the number of classes is {}; it must be at least 1", classes));
  Shape shape = inputs[0].shape;
  shape.push_back(classes);
  return {{dtype, shape}};
}
Tensors OneHotOp::vjp(const VjpArgs&) const { return {Tensor()}; }
Tensors OneHotOp::vmap(const VmapArgs& args) const { return {one_hot(args.inputs[0], classes, dtype)}; }

Types Index32Op::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  if (inputs[0].dtype != DType::i64 && inputs[0].dtype != DType::u8) check_index_dtype(inputs[0]);
  return {{DType::i32, inputs[0].shape}};
}
Tensor engine::index32(const Tensor& indices) {
  const bool converts = indices.dtype() == DType::i64 || indices.dtype() == DType::u8;
  return converts ? apply_op1(std::make_shared<Index32Op>(), {indices}) : indices;
}

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  return apply_op1(std::make_shared<GatherOp>(normalize_axis(axis, x.type())), {x, index32(index)});
}
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  axis = normalize_axis(axis, x.type());
  const Tensor added =
      apply_op1(std::make_shared<ScatterAddOp>(axis, x.size(axis)), {source, index32(index)});
  if (added.type() != x.type())
    throw Error(fmt::format("scatter_add: {} does not fit into {} on axis {}", to_string(source.type()),
                            to_string(x.type()), axis));
  return x + added;
}
Tensor embedding(const Tensor& table, const Tensor& ids) {
  return apply_op1(std::make_shared<EmbeddingOp>(), {table, index32(ids)});
}
Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype) {
  return apply_op1(std::make_shared<OneHotOp>(classes, dtype), {index32(ids)});
}

}  // namespace tandem
