#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/ops/copy.h>
#include <tandem/ops/shape.h>

#include "op_case.h"

namespace tandem::test {
namespace {

// Elements are only moved: every kernel gives the same bits.
void add_moved(OpCases& cases, std::string name, std::vector<InputSpec> inputs,
               std::function<Tensors(const Tensors&)> apply) {
  OpCase c{std::move(name), std::move(inputs), std::move(apply)};
  c.exact = c.any_team = true;
  cases.push_back(c);
}

void add_reshape(OpCases& cases) {
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{{{1}, {}},
                                                                     {{6}, {2, 3}},
                                                                     {{2, 3}, {6, 1}},
                                                                     {{4, 3, 5}, {4, -1}},
                                                                     {{7, 13}, {91}},
                                                                     {{12, 300}, {300, 12}},
                                                                     {{0, 3}, {2, -1}}})
    add_moved(cases, fmt::format("reshape_{}_{}", shape_name(from), cases.size()), {f32(from)},
              [to = to](const Tensors& x) { return Tensors{reshape(x[0], to)}; });
}

void add_transpose(OpCases& cases) {
  for (const auto& [shape, perm] :
       std::vector<std::pair<Shape, std::vector<int>>>{{{1}, {0}},
                                                       {{3, 5}, {1, 0}},
                                                       {{2, 3, 4}, {2, 0, 1}},
                                                       {{2, 3, 4}, {0, 2, 1}},
                                                       {{5, 1, 7}, {2, 1, 0}},
                                                       {{33, 65}, {1, 0}},
                                                       {{2, 9, 11, 37}, {0, 3, 1, 2}},
                                                       {{3, 2, 40, 35}, {3, 1, 0, 2}},
                                                       {{3, 0}, {1, 0}}})
    add_moved(cases, fmt::format("transpose_{}_{}", shape_name(shape), fmt::join(perm, "")), {f32(shape)},
              [perm = perm](const Tensors& x) { return Tensors{transpose(x[0], perm)}; });
}

void add_concat(OpCases& cases) {
  struct Concat {
    std::vector<Shape> shapes;
    int axis;
  };
  for (const auto& [shapes, axis] : std::vector<Concat>{{{{1}}, 0},
                                                        {{{2}, {3}}, 0},
                                                        {{{2, 3}, {2, 1}, {2, 4}}, -1},
                                                        {{{4, 3}, {1, 3}}, 0},
                                                        {{{3, 2, 5}, {3, 7, 5}}, 1},
                                                        {{{9, 40, 16}, {9, 33, 16}}, 1},
                                                        {{{0, 3}, {2, 3}, {0, 3}}, 0}}) {
    std::vector<InputSpec> inputs;
    for (const Shape& s : shapes) inputs.push_back(f32(s));
    add_moved(cases, fmt::format("concat_{}_of_{}", shapes.size(), shape_name(shapes[0])), inputs,
              [axis = axis](const Tensors& x) { return Tensors{concat(x, axis)}; });
  }
}

void add_slice_and_pad(OpCases& cases) {
  struct Part {
    Shape shape;
    int axis;
    std::int64_t begin, end;
  };
  for (const auto& [shape, axis, begin, end] : std::vector<Part>{{{3}, 0, 1, 2},
                                                                 {{7}, 0, 0, 4},
                                                                 {{3, 5}, 1, 2, 5},
                                                                 {{3, 5}, 0, 1, 2},
                                                                 {{4, 6, 5}, 1, 2, 5},
                                                                 {{3, 20001}, 0, 1, 3},
                                                                 {{2, 3, 900}, -1, 13, 890}}) {
    const std::string name = fmt::format("{}_{}_{}", shape_name(shape), begin, end);
    add_moved(cases, "slice_" + name, {f32(shape)},
              [=, axis = axis, begin = begin, end = end](const Tensors& x) {
                return Tensors{slice(x[0], axis, begin, end)};
              });
    add_moved(cases, "pad_" + name, {f32(shape)},
              [=, axis = axis, begin = begin, end = end](const Tensors& x) {
                return Tensors{pad(x[0], axis, begin, end - begin)};
              });
  }
}

void add_broadcast(OpCases& cases) {
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{{{}, {3}},
                                                                     {{1}, {1, 1}},
                                                                     {{5}, {3, 5}},
                                                                     {{3, 1}, {3, 5}},
                                                                     {{2, 1, 3}, {4, 2, 7, 3}},
                                                                     {{37, 1}, {37, 61}},
                                                                     {{1, 300}, {9, 300}},
                                                                     {{1}, {2, 0}}}) {
    OpCase c{fmt::format("broadcast_to_{}_{}", shape_name(from), shape_name(to)),
             {f32(from)},
             [to = to](const Tensors& x) { return Tensors{broadcast_to(x[0], to)}; }};
    c.any_team = true;
    cases.push_back(c);  // not exact: the gradient is a sum
  }
}

}  // namespace

OpCases shape_cases() {
  OpCases cases;
  add_reshape(cases);
  add_transpose(cases);
  add_concat(cases);
  add_slice_and_pad(cases);
  add_moved(cases, "pad_0x3", {f32({0, 3})}, [](const Tensors& x) { return Tensors{pad(x[0], 0, 1, 2)}; });
  add_broadcast(cases);
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{129, 65}})
    add_moved(cases, "copies_" + shape_name(shape), {f32(shape)}, [](const Tensors& x) {
      return Tensors{copy_in(copy_out(x[0])), apply_op1(std::make_shared<Copy>(), {x[0]})};
    });
  for (DType dtype : {DType::bf16, DType::u8, DType::i64}) {  // other element sizes
    OpCase c{
        fmt::format("move_{}", name_of(dtype)), {{{dtype, {33, 40}}, 0, 1}}, [](const Tensors& x) {
          return Tensors{concat({slice(x[0], 0, 1, 30), pad(x[0], 0, 2, 3)}, 0), transpose(x[0], {1, 0})};
        }};
    if (!is_floating(dtype)) c.no_gradient = "integers have no derivative";
    c.no_finite_difference = "bf16 does not resolve the step";
    c.exact = c.any_team = true;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tandem::test
