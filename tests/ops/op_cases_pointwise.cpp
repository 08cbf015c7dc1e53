#include <fmt/format.h>

#include <tandem/ops/activation.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/pointwise.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

// A scalar, odd extents, more than a tile (1024 elements) but not a multiple of it, and no elements.
const std::vector<Shape> kShapes{{}, {1}, {7}, {3, 5}, {2, 1, 9}, {4, 259}, {5, 613}, {3, 0}};

struct Unary {
  const char* name;
  Tensor (*function)(const Tensor&);
  double low = -3, high = 3, gap = 0;
  bool exact = true;  // without transcendental functions
  double inner_values = 0;
};

void add_unary(OpCases& cases) {
  const std::vector<Unary> ops{
      {"neg", neg},
      {"abs", abs, -3, 3, 0.01},
      {"relu", relu, -3, 3, 0.01},
      {"exp", exp, -3, 3, 0, false},
      {"log", log, 0.1, 4, 0, false},
      {"sqrt", sqrt, 0.1, 4},
      {"rsqrt", rsqrt, 0.1, 4},
      {"tanh", tanh, -3, 3, 0, false},
      {"sigmoid", sigmoid, -3, 3, 0, false},
      {"erf", erf, -3, 3, 0, false},
      {"gelu", gelu, -3, 3, 0, false},
      {"softplus", softplus, -12, 12, 0, false},
      {"silu", silu, -3, 3, 0, false},
      {"elu", [](const Tensor& x) { return elu(x, 1.3); }, -3, 3, 0.01, false},
      {"selu", selu, -3, 3, 0.01, false},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }, -3, 3, 0.01},
      {"hard_sigmoid", [](const Tensor& x) { return hard_sigmoid(x * 2.0 + 3.0); }, -6, 3,
       0.01},                                        // kinks at 0, −3
      {"gelu_tanh", gelu_tanh, -4, 4, 0, false, 4},  // x/2·(1 + tanh(…)), where tanh is near −1
      {"hard_swish", [](const Tensor& x) { return hard_swish(x * 2.0 + 3.0); }, -6, 3, 0.01},
      {"clamp", [](const Tensor& x) { return clamp(x + 0.5, 0.5, 7); }, -3, 3, 0.01},
      {"maximum_scalar", [](const Tensor& x) { return maximum(x, 0.0); }, -3, 3, 0.01},
      {"minimum_scalar", [](const Tensor& x) { return minimum(x + 1.5, 1.5); }, -3, 3, 0.01},
      {"pow_2", [](const Tensor& x) { return pow(x, 2); }},
      {"pow_3", [](const Tensor& x) { return pow(x, 3); }},
      {"pow_4", [](const Tensor& x) { return pow(x, 4); }, -3, 3, 0, false},
      {"pow_minus_1", [](const Tensor& x) { return pow(x, -1); }, 0.5, 3},
      {"pow_half", [](const Tensor& x) { return pow(x, 0.5); }, 0.1, 4},
      {"pow_minus_half", [](const Tensor& x) { return pow(x, -0.5); }, 0.1, 4},
      {"pow_1_7", [](const Tensor& x) { return pow(x, 1.7); }, 0.1, 4, 0, false},
      {"scale", [](const Tensor& x) { return scale(x, 0.3); }},
      {"add_scalar", [](const Tensor& x) { return add_scalar(x, -1.7); }},
      {"rdiv_scalar", [](const Tensor& x) { return 2.5 / x; }, 0.5, 3},
      {"rsub_scalar", [](const Tensor& x) { return 2.5 - x; }},
      {"sub_div_scalar", [](const Tensor& x) { return (x - 0.25) / 3.0; }},
  };
  for (const Unary& op : ops)
    for (const Shape& shape : kShapes) {
      OpCase c{fmt::format("{}_{}", op.name, shape_name(shape)),
               {f32(shape, op.low, op.high, op.gap)},
               [f = op.function](const Tensors& x) { return Tensors{f(x[0])}; }};
      c.exact = op.exact;
      c.any_team = true;
      c.inner_values = op.inner_values;
      cases.push_back(c);
      if (shape.size() == 2) cases.push_back(derivative_of(c));
    }
}

struct Binary {
  const char* name;
  Tensor (*function)(const Tensor&, const Tensor&);
  double low = -3, high = 3;
};

// Same shape, and every way of broadcasting: scalar, trailing, leading, inner, outer product, either side.
const std::vector<std::pair<Shape, Shape>> kPairs{{{}, {}},
                                                  {{1}, {1}},
                                                  {{3, 5}, {3, 5}},
                                                  {{5, 613}, {5, 613}},
                                                  {{4, 259}, {}},
                                                  {{7, 3, 5}, {5}},
                                                  {{9, 1200}, {1200}},
                                                  {{6, 33, 16}, {33, 16}},
                                                  {{37, 61}, {37, 1}},
                                                  {{1}, {2, 1301}},
                                                  {{7, 1}, {1, 300}},
                                                  {{2, 3, 1, 17}, {3, 25, 1}},
                                                  {{0, 5}, {5}},
                                                  {{1}, {2, 0}},
                                                  // More loops than the fast kernel nests.
                                                  {{2, 1, 2, 1, 2, 1, 2, 1, 2}, {2, 1, 2, 1, 2, 1, 2, 1}}};

OpCase binary_case(const Binary& op, const Shape& a, const Shape& b) {
  OpCase c{fmt::format("{}_{}_{}", op.name, shape_name(a), shape_name(b)),
           {f32_distinct(a, op.low, op.high), f32_distinct(b, op.low, op.high)},
           [f = op.function](const Tensors& x) { return Tensors{f(x[0], x[1])}; }};
  c.any_team = true;
  return c;
}

void add_binary(OpCases& cases) {
  const std::vector<Binary> arithmetic{{"add", add},         {"sub", sub},         {"mul", mul},
                                       {"div", div, 0.5, 3}, {"maximum", maximum}, {"minimum", minimum},
                                       {"pow", pow, 0.5, 3}};
  for (const Binary& op : arithmetic)
    for (const auto& [a, b] : kPairs) {
      cases.push_back(binary_case(op, a, b));
      if (a.size() == 3 && b.size() == 1) cases.push_back(derivative_of(binary_case(op, a, b)));
    }
  const std::vector<Binary> comparisons{{"equal", equal},     {"not_equal", not_equal},
                                        {"less", less},       {"less_equal", less_equal},
                                        {"greater", greater}, {"greater_equal", greater_equal}};
  for (const Binary& op : comparisons)
    for (const auto& [a, b] : kPairs) {
      OpCase c{fmt::format("{}_{}_{}", op.name, shape_name(a), shape_name(b)),
               {f32_whole(a, -2, 2), f32_whole(b, -2, 2)},
               [f = op.function](const Tensors& x) { return Tensors{f(x[0], x[1])}; }};
      c.no_gradient = "a comparison is constant almost everywhere";
      c.exact = c.any_team = true;
      cases.push_back(c);
    }
}

void add_floor(OpCases& cases) {
  for (const Shape& shape : kShapes) {
    OpCase c{"floor_" + shape_name(shape), {f32(shape, -3, 3)}, [](const Tensors& x) {
               return Tensors{floor(x[0])};
             }};
    c.no_gradient = "floor is constant almost everywhere";
    c.exact = c.any_team = true;
    cases.push_back(c);
  }
}

void add_where(OpCases& cases) {
  for (const auto& [a, b] : kPairs) {
    OpCase c{fmt::format("where_{}_{}", shape_name(a), shape_name(b)),
             {b8(a), f32(a), f32(b)},
             [](const Tensors& x) { return Tensors{where(x[0], x[1], x[2])}; }};
    c.exact = a == b;  // if they differ, the gradients are sums
    c.any_team = true;
    cases.push_back(c);
  }
  OpCase c{"where_scalar_otherwise", {b8({3, 1, 5}), f32({3, 7, 5})}, [](const Tensors& x) {
             return Tensors{where(x[0], x[1], -2.5)};
           }};
  c.exact = c.any_team = true;
  cases.push_back(c);
}

void add_casts(OpCases& cases) {
  for (DType to : {DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::b8, DType::f64})
    for (const Shape& shape : kShapes) {
      OpCase c{fmt::format("cast_{}_{}", name_of(to), shape_name(shape)),
               {f32(shape, -3, 3, 0.01)},
               [to](const Tensors& x) { return Tensors{cast(x[0], to)}; }};
      if (!is_floating(to)) c.no_gradient = "integers have no derivative";
      c.no_finite_difference = "the derivative passes over the rounding";
      c.exact = c.any_team = true;
      cases.push_back(c);
    }
  for (DType from : {DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::b8})
    for (const Shape& shape : {Shape{5}, Shape{3, 700}}) {
      OpCase c{fmt::format("cast_from_{}_{}", name_of(from), shape_name(shape)),
               {{{from, shape}, 0, 1}},
               [](const Tensors& x) { return Tensors{cast(x[0], DType::f32)}; }};
      if (!is_floating(from)) c.no_gradient = "integers have no derivative";
      c.no_finite_difference = "bf16 and f16 do not resolve the step";
      c.exact = c.any_team = true;
      cases.push_back(c);
    }
}

// Several terms, mixed and narrow dtypes, and enough registers that some are reused.
void add_expressions(OpCases& cases) {
  const auto normalize = [](const Tensors& x) {  // relu((x − mean)·rsqrt(variance + ε)·scale + bias)
    using enum PointwiseCode;
    const PointwiseExpression program{
        {input, 0},  {input, 1},   {sub, 0, 1}, {input, 2}, {constant, -1, -1, -1, 1e-3},
        {add, 3, 4}, {rsqrt, 5},   {mul, 2, 6}, {input, 3}, {mul, 7, 8},
        {input, 4},  {add, 9, 10}, {relu, 11}};
    return apply_op(std::make_shared<PointwiseOp>(program, x[0].dtype()), x);
  };
  for (const auto& [image, channels] :
       {std::pair<Shape, Shape>{{2, 3, 3, 8}, {8}}, {{3, 7, 11, 13}, {13}}, {{5}, {5}}}) {
    OpCase c{fmt::format("normalize_{}", shape_name(image)),
             {f32(image), f32(channels), f32(channels, 0.5, 2), f32(channels), f32(channels, 3, 4)},
             normalize};
    c.any_team = true;
    cases.push_back(c);
  }
  const auto narrow = [](const Tensors& x) {
    return Tensors{mul(add(cast(x[0], DType::bf16), cast(x[1], DType::f16)), x[2])};
  };
  OpCase c{"mixed_dtypes", {f32({37, 61}), f32({61}), f32({37, 1})}, narrow};
  c.any_team = true;
  c.narrow_step = 0x1p-6;  // of bf16 from 2 to 4, and of f16 from 16 to 32
  c.no_finite_difference = "bf16 does not resolve the step";
  cases.push_back(c);
}

}  // namespace

OpCases pointwise_cases() {
  OpCases cases;
  add_unary(cases);
  add_binary(cases);
  add_floor(cases);
  add_where(cases);
  add_casts(cases);
  add_expressions(cases);
  return cases;
}

}  // namespace tandem::testing
