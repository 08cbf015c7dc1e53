#include <tandem/ops/pointwise.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/broadcast.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

using Code = PointwiseCode;

Tensor unary(Code code, const Tensor& x) {
  return apply_pointwise({{Code::input, 0}, {code, 0}}, x.dtype(), {x});
}

// The wider of two dtypes.
DType wider(DType a, DType b) {
  if (a == b) return a;
  constexpr std::array order{DType::f64, DType::f32, DType::f16, DType::bf16,
                             DType::i64, DType::i32, DType::u8,  DType::b8};
  const auto place = [&](DType d) { return std::find(order.begin(), order.end(), d); };
  const DType wide = *std::min(place(a), place(b));
  return wide == DType::f16 && std::max(a, b) == DType::f16 && std::min(a, b) == DType::bf16 ? DType::f32
                                                                                             : wide;
}

Tensor binary(Code code, const Tensor& a, const Tensor& b, DType dtype) {
  return apply_pointwise({{Code::input, 0}, {Code::input, 1}, {code, 0, 1}}, dtype, {a, b});
}
Tensor arithmetic(Code code, const Tensor& a, const Tensor& b) {
  return binary(code, a, b, wider(a.dtype(), b.dtype()));
}
Tensor comparison(Code code, const Tensor& a, const Tensor& b) { return binary(code, a, b, DType::b8); }

// code(x, value), or code(value, x) if `value_first`.
Tensor with_constant(Code code, const Tensor& x, double value, bool value_first = false) {
  PointwiseExpression expression{{Code::input, 0}, {Code::constant, -1, -1, -1, value}, {code, 0, 1}};
  if (value_first) std::swap(expression[2].a, expression[2].b);
  return apply_pointwise(std::move(expression), x.dtype() == DType::b8 ? DType::i32 : x.dtype(), {x});
}
Tensor comparison(Code code, const Tensor& x, double value) {
  return apply_pointwise({{Code::input, 0}, {Code::constant, -1, -1, -1, value}, {code, 0, 1}}, DType::b8,
                         {x});
}

void require_numbers(const Tensor& x, const char* op) {
  if (x.dtype() == DType::b8)
    throw Error(fmt::format("{}: {} has no numbers; cast it, or use where() or not_equal()", op,
                            to_string(x.type())));
}

bool computes(Code code) { return code != Code::input && code != Code::constant; }

}  // namespace

DType engine::pointwise_precision(TypesView inputs, DType output) {
  const auto wide = [](DType d) { return d == DType::f64 || d == DType::i32 || d == DType::i64; };
  return wide(output) || std::ranges::any_of(inputs, wide, &TensorType::dtype) ? DType::f64 : DType::f32;
}

TakesExpression::TakesExpression(PointwiseExpression expression, DType dtype, std::size_t first)
    : expression(std::move(expression)), dtype(dtype), first(first) {
  check(this->expression);
}

OpPtr PointwiseOp::with(PointwiseExpression expression) const {
  return std::make_shared<PointwiseOp>(std::move(expression), dtype, label());
}

std::string PointwiseOp::label() const {
  if (!label_.empty()) return label_;
  const PointwiseTerm* only = nullptr;
  for (const auto& i : expression) {
    if (!computes(i.code)) continue;
    if (only) return std::string(name());
    only = &i;
  }
  return std::string(only ? name_of(only->code) : name());
}

std::string PointwiseOp::attributes() const {
  return fmt::format("{} -> {}", to_string(expression), name_of(dtype));
}

Types PointwiseOp::infer(TypesView inputs) const {
  if (static_cast<int>(inputs.size()) != input_count(expression))
    throw Error(fmt::format("[{}] takes {} inputs, not {}", to_string(expression), input_count(expression),
                            inputs.size()));
  return {{dtype, broadcast_shape(inputs)}};
}

Tensors PointwiseOp::vjp(const VjpArgs& args) const {
  Tensors all = args.inputs;
  all.push_back(args.outputs[0]);
  all.push_back(args.grads[0]);
  Tensors gradients(args.inputs.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const TensorType& type = args.inputs[i].type();
    PointwiseBuilder builder;
    int result = -1;
    if (!args.needed[i] || !is_floating(type.dtype) ||
        !differentiate(expression, static_cast<int>(i), builder, result))
      continue;
    std::vector<int> used;
    PointwiseExpression gradient = builder.finish(result, used);
    Tensors operands;
    for (int k : used) operands.push_back(all[static_cast<std::size_t>(k)]);
    const bool is_copy = gradient.size() == 1 && operands[0].dtype() == type.dtype;
    const Tensor g =
        is_copy ? operands[0] : apply_op1(std::make_shared<PointwiseOp>(gradient, type.dtype), operands);
    gradients[i] = sum_to(g, type.shape);
  }
  return gradients;
}

Tensors PointwiseOp::vmap(const VmapArgs& args) const {
  int rank = 0;  // of one model's output
  for (std::size_t i = 0; i < args.inputs.size(); ++i)
    rank = std::max(rank, args.inputs[i].type().rank() - (args.mapped[i] ? 1 : 0));
  Tensors inputs = args.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Shape shape = inputs[i].shape();
    const int missing = rank + 1 - static_cast<int>(shape.size());
    if (!args.mapped[i] || missing == 0) continue;
    shape.insert(shape.begin() + 1, static_cast<std::size_t>(missing), 1);  // (M, …) -> (M, 1, …)
    inputs[i] = reshape(inputs[i], shape);
  }
  return apply_op(std::make_shared<PointwiseOp>(expression, dtype, label_), inputs);
}

Work PointwiseOp::cost(TypesView inputs, TypesView outputs) const {
  const auto flops = std::ranges::count_if(expression, computes, &PointwiseTerm::code);
  return streaming_work(inputs, outputs, static_cast<double>(flops));
}

std::vector<Alias> PointwiseOp::may_alias(TypesView inputs) const {
  const TensorType output = infer(inputs)[0];
  std::vector<Alias> aliases;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].shape == output.shape && size_of(inputs[i].dtype) == size_of(output.dtype))
      aliases.push_back({0, static_cast<int>(i), Alias::in_place});
  return aliases;
}

Tensor engine::apply_pointwise(PointwiseExpression expression, DType dtype, const Tensors& inputs,
                               std::string label) {
  auto op = std::make_shared<PointwiseOp>(std::move(expression), dtype, std::move(label));
  if (!is_floating(dtype) && !stays_whole(op->expression) &&
      std::ranges::none_of(inputs, [](const Tensor& t) { return is_floating(t.dtype()); }))
    throw Error(fmt::format("{} of {}, {}: the result can have a fraction; cast to a floating dtype first",
                            op->label(), name_of(dtype), to_string(op->expression)));
  return apply_op1(std::move(op), inputs);
}

Tensor add(const Tensor& a, const Tensor& b) { return arithmetic(Code::add, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) require_numbers(a, "sub");
  return arithmetic(Code::sub, a, b);
}
Tensor mul(const Tensor& a, const Tensor& b) { return arithmetic(Code::mul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return arithmetic(Code::div, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return arithmetic(Code::max, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return arithmetic(Code::min, a, b); }
Tensor pow(const Tensor& base, const Tensor& exponent) { return arithmetic(Code::pow, base, exponent); }

Tensor scale(const Tensor& x, double factor) { return with_constant(Code::mul, x, factor); }
Tensor add_scalar(const Tensor& x, double addend) { return with_constant(Code::add, x, addend); }
Tensor maximum(const Tensor& x, double low) { return with_constant(Code::max, x, low, true); }
Tensor minimum(const Tensor& x, double high) { return with_constant(Code::min, x, high, true); }

Tensor pow(const Tensor& x, double exponent) {
  const auto product = [&](PointwiseExpression expression) {
    return apply_pointwise(std::move(expression), x.dtype(), {x});
  };
  if (exponent == 1) return x;
  if (exponent == 2) return product({{Code::input, 0}, {Code::mul, 0, 0}});
  if (exponent == 3) return product({{Code::input, 0}, {Code::mul, 0, 0}, {Code::mul, 1, 0}});
  if (exponent == -1) return 1.0 / x;
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -0.5) return rsqrt(x);
  return with_constant(Code::pow, x, exponent);
}

Tensor clamp(const Tensor& x, double low, double high) {
  if (!(low <= high))
    throw Error(fmt::format("clamp: the lower limit {} must not be above the upper limit {}", low, high));
  const PointwiseExpression expression{{Code::input, 0},
                                       {Code::constant, -1, -1, -1, low},
                                       {Code::max, 1, 0},
                                       {Code::constant, -1, -1, -1, high},
                                       {Code::min, 3, 2}};
  return apply_pointwise(expression, x.dtype(), {x});
}

Tensor neg(const Tensor& x) {
  require_numbers(x, "neg");
  return unary(Code::neg, x);
}
Tensor abs(const Tensor& x) { return unary(Code::abs, x); }
Tensor floor(const Tensor& x) { return unary(Code::floor, x); }
Tensor relu(const Tensor& x) { return unary(Code::relu, x); }
Tensor exp(const Tensor& x) { return unary(Code::exp, x); }
Tensor log(const Tensor& x) { return unary(Code::log, x); }
Tensor sqrt(const Tensor& x) { return unary(Code::sqrt, x); }
Tensor rsqrt(const Tensor& x) { return unary(Code::rsqrt, x); }
Tensor tanh(const Tensor& x) { return unary(Code::tanh, x); }
Tensor sigmoid(const Tensor& x) { return unary(Code::sigmoid, x); }
Tensor erf(const Tensor& x) { return unary(Code::erf, x); }
Tensor softplus(const Tensor& x) { return unary(Code::softplus, x); }
Tensor gelu(const Tensor& x) { return unary(Code::gelu, x); }

Tensor equal(const Tensor& a, const Tensor& b) { return comparison(Code::eq, a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return comparison(Code::ne, a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return comparison(Code::lt, a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return comparison(Code::le, a, b); }
Tensor greater(const Tensor& a, const Tensor& b) { return comparison(Code::gt, a, b); }
Tensor greater_equal(const Tensor& a, const Tensor& b) { return comparison(Code::ge, a, b); }
Tensor equal(const Tensor& x, double value) { return comparison(Code::eq, x, value); }
Tensor not_equal(const Tensor& x, double value) { return comparison(Code::ne, x, value); }
Tensor less(const Tensor& x, double value) { return comparison(Code::lt, x, value); }
Tensor less_equal(const Tensor& x, double value) { return comparison(Code::le, x, value); }
Tensor greater(const Tensor& x, double value) { return comparison(Code::gt, x, value); }
Tensor greater_equal(const Tensor& x, double value) { return comparison(Code::ge, x, value); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const PointwiseExpression expression{
      {Code::input, 0}, {Code::input, 1}, {Code::input, 2}, {Code::where, 0, 1, 2}};
  return apply_pointwise(expression, wider(a.dtype(), b.dtype()), {condition, a, b});
}
Tensor where(const Tensor& condition, const Tensor& a, double b) {
  const PointwiseExpression expression{
      {Code::input, 0}, {Code::input, 1}, {Code::constant, -1, -1, -1, b}, {Code::where, 0, 1, 2}};
  return apply_pointwise(expression, a.dtype(), {condition, a});
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return apply_pointwise({{Code::input, 0}}, dtype, {x});
}

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator-(const Tensor& x) { return neg(x); }
Tensor operator+(const Tensor& a, double b) { return add_scalar(a, b); }
Tensor operator-(const Tensor& a, double b) { return with_constant(Code::sub, a, b); }
Tensor operator*(const Tensor& a, double b) { return scale(a, b); }
Tensor operator/(const Tensor& a, double b) { return with_constant(Code::div, a, b); }
Tensor operator+(double a, const Tensor& b) { return add_scalar(b, a); }
Tensor operator-(double a, const Tensor& b) { return with_constant(Code::sub, b, a, true); }
Tensor operator*(double a, const Tensor& b) { return scale(b, a); }
Tensor operator/(double a, const Tensor& b) { return with_constant(Code::div, b, a, true); }
Tensor operator<(const Tensor& a, const Tensor& b) { return less(a, b); }
Tensor operator<=(const Tensor& a, const Tensor& b) { return less_equal(a, b); }
Tensor operator>(const Tensor& a, const Tensor& b) { return greater(a, b); }
Tensor operator>=(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }
Tensor operator<(const Tensor& a, double b) { return less(a, b); }
Tensor operator<=(const Tensor& a, double b) { return less_equal(a, b); }
Tensor operator>(const Tensor& a, double b) { return greater(a, b); }
Tensor operator>=(const Tensor& a, double b) { return greater_equal(a, b); }

}  // namespace tandem
