#include <fmt/format.h>

#include <tandem/ops/apply.h>
#include <tandem/ops/epilogue.h>
#include <tandem/ops/matmul.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct Product {
  std::int64_t m, k, n;
};
// Single elements, vectors, odd numbers, whole tiles and one more, and more work than one thread takes.
const std::vector<Product> kProducts{{1, 1, 1},    {1, 7, 1},    {5, 1, 3},     {3, 5, 2},
                                     {17, 31, 13}, {4, 129, 65}, {130, 257, 70}};

Shape matrix(Shape leading, std::int64_t rows, std::int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  leading.push_back(rows);
  leading.push_back(columns);
  return leading;
}

OpCase matmul_case(const Shape& leading, const Product& p, MatMulOptions options, bool bias) {
  OpCase c{
      fmt::format("matmul_{}_{}x{}x{}{}{}{}", shape_name(leading), p.m, p.k, p.n,
                  options.transpose_a ? "_ta" : "", options.transpose_b ? "_tb" : "", bias ? "_bias" : ""),
      {f32(matrix(leading, p.m, p.k, options.transpose_a)),
       f32(matrix(leading, p.k, p.n, options.transpose_b))},
      [options](const Tensors& in) { return Tensors{apply_op1(std::make_shared<MatMulOp>(options), in)}; }};
  if (bias) {
    Shape shape = leading;
    shape.push_back(p.n);
    c.inputs.push_back(f32(shape));
  }
  return c;
}

// relu(a·bᵀ·scale + residual).
OpCase epilogue_case(const Product& p) {
  using Code = PointwiseCode;
  OpCase c{fmt::format("epilogue_{}x{}x{}", p.m, p.k, p.n),
           {f32({p.m, p.k}), f32({p.n, p.k}), f32({p.n}), f32({p.m, p.n})},
           [](const Tensors& in) {
             const PointwiseExpression program{{Code::input, 0}, {Code::input, 1},  {Code::mul, 0, 1},
                                               {Code::input, 2}, {Code::add, 2, 3}, {Code::relu, 4}};
             const auto product = std::make_shared<MatMulOp>(MatMulOptions{false, true});
             return Tensors{apply_op1(std::make_shared<EpilogueOp>(product, 2, program, "relu"), in)};
           }};
  c.no_gradient = "a pass makes epilogues after differentiation";
  return c;
}

}  // namespace

OpCases matmul_cases() {
  OpCases cases;
  for (const Product& p : kProducts) cases.push_back(epilogue_case(p));
  for (const Product& p : kProducts)
    for (bool ta : {false, true})
      for (bool tb : {false, true}) cases.push_back(matmul_case({}, p, {ta, tb}, p.m % 2 == 1));
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      cases.push_back(matmul_case({2}, {3, 4, 5}, {ta, tb}, false));
      cases.push_back(derivative_of(matmul_case({}, {3, 4, 2}, {ta, tb}, true)));
    }
  cases.push_back(matmul_case({1}, {1, 1, 1}, {}, true));
  cases.push_back(matmul_case({2, 3}, {5, 7, 3}, {}, true));
  cases.push_back(matmul_case({5}, {64, 33, 48}, {false, true}, false));
  cases.push_back(matmul_case({2}, {96, 160, 80}, {}, false));

  // Leading axes that broadcast.
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{4, 2, 3}, {3, 5}},
                                                                 {{2, 3}, {4, 3, 5}},
                                                                 {{4, 1, 2, 3}, {2, 3, 5}},
                                                                 {{2, 1, 3, 4}, {1, 3, 4, 2}}}) {
    const OpCase c{fmt::format("matmul_{}_by_{}", shape_name(a), shape_name(b)),
                   {f32(a), f32(b)},
                   [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; }};
    cases.push_back(c);
    cases.push_back(derivative_of(c));
  }
  const OpCase transposed{
      "matmul_4x3x2_by_3x5_transposed", {f32({4, 3, 2}), f32({3, 5})}, [](const Tensors& in) {
        return Tensors{matmul(in[0], in[1], {true, false})};
      }};
  cases.push_back(transposed);

  const auto linear_case = [](const Shape& x, std::int64_t out, bool bias) {
    OpCase c{
        fmt::format("linear_{}_to_{}{}", shape_name(x), out, bias ? "_bias" : ""),
        {f32(x), f32({out, x.back()})},
        [](const Tensors& in) { return Tensors{linear(in[0], in[1], in.size() == 3 ? in[2] : Tensor())}; }};
    if (bias) c.inputs.push_back(f32({out}));
    return c;
  };
  for (bool bias : {false, true})
    for (const Shape& x : {Shape{1, 1}, Shape{5, 7}, Shape{2, 3, 4}})
      cases.push_back(linear_case(x, 3, bias));
  cases.push_back(linear_case({64, 300}, 101, true));
  return cases;
}

}  // namespace tandem::testing
