#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/ops/apply.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/index.h>
#include <tandem/ops/shape.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Elements are only moved, or added in a fixed order: every kernel gives the same bits.
void add_moved(OpCases& cases, std::string name, std::vector<InputSpec> inputs,
               std::function<Tensors(const Tensors&)> apply) {
  OpCase c{std::move(name), std::move(inputs), std::move(apply)};
  c.exact = c.any_team = true;
  cases.push_back(c);
  bool small = true;
  for (const InputSpec& input : c.inputs)
    small = small && element_count(input.type.shape) > 0 && element_count(input.type.shape) < 100;
  if (small) cases.push_back(derivative_of(c));
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

// Steps on one axis and on several, steps beyond the extent, over rows and over single elements, odd numbers.
void add_strided_slice(OpCases& cases) {
  struct Part {
    const char* name;
    Shape shape;
    std::vector<AxisRange> ranges;
  };
  for (const auto& [name, shape, ranges] :
       std::vector<Part>{{"7_by_2", {7}, {{0, 0, 7, 2}}},
                         {"1_beyond", {1}, {{0, 0, 1, 3}}},
                         {"8_inner", {8}, {{0, 1, 7, 3}}},
                         {"rows", {7, 5}, {{0, 1, 7, 2}}},
                         {"columns", {3, 11}, {{-1, 2, 10, 4}}},
                         {"both", {5, 7}, {{1, 1, 7, 2}, {0, 0, 5, 3}}},
                         {"box", {4, 6, 5}, {{0, 1, 3}, {2, 0, 5, 2}}},
                         {"pixels", {2, 5, 7, 3}, {{1, 0, 5, 2}, {2, 0, 7, 2}}},
                         {"image", {2, 17, 9, 16}, {{1, 0, 17, 2}, {2, 1, 9, 2}}},
                         {"long", {3, 7001}, {{1, 3, 7000, 2}}},
                         {"none", {0, 6}, {{1, 0, 6, 2}}}}) {
    add_moved(cases, fmt::format("slice_steps_{}", name), {f32(shape)},
              [ranges = ranges](const Tensors& x) { return Tensors{slice(x[0], ranges)}; });
    std::vector<AxisPadding> paddings;
    for (const AxisRange& r : ranges) paddings.push_back({r.axis, r.begin, r.end % 3, r.step - 1});
    add_moved(cases, fmt::format("pad_between_{}", name), {f32(shape)},
              [paddings](const Tensors& x) { return Tensors{pad(x[0], paddings)}; });
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
    if (element_count(to) > 0 && element_count(to) < 100) cases.push_back(derivative_of(c));
  }
}

void add_flip(OpCases& cases) {
  for (const auto& [shape, axes] : std::vector<std::pair<Shape, std::vector<int>>>{{{1}, {0}},
                                                                                   {{7}, {0}},
                                                                                   {{3, 5}, {0}},
                                                                                   {{3, 5}, {1}},
                                                                                   {{3, 5}, {0, 1}},
                                                                                   {{2, 9, 7, 5}, {1, 2}},
                                                                                   {{4, 33, 65, 3}, {2}},
                                                                                   {{2, 3, 20001}, {0, 2}},
                                                                                   {{0, 3}, {0, 1}}}) {
    add_moved(cases, fmt::format("flip_{}_axes_{}", shape_name(shape), fmt::join(axes, "_")), {f32(shape)},
              [axes = axes](const Tensors& x) { return Tensors{flip(x[0], axes)}; });
  }
}

void add_split_and_stack(OpCases& cases) {
  for (const Shape& shape :
       {Shape{3}, Shape{3, 1}, Shape{3, 5}, Shape{2, 3, 7}, Shape{3, 4, 257}, Shape{61, 3}}) {
    const auto three = static_cast<int>(std::find(shape.begin(), shape.end(), 3) - shape.begin());
    add_moved(cases, "split_" + shape_name(shape), {f32(shape)}, [three](const Tensors& x) {
      return split(x[0], {1, 2}, three);
    });
    for (int axis : {0, 1, -1})
      add_moved(cases,
                fmt::format("stack_{}_axis{}", shape_name(shape),
                            axis < 0 ? "_last"
                            : axis   ? "1"
                                     : "0"),
                {f32(shape), f32(shape), f32(shape)},
                [axis](const Tensors& x) { return Tensors{stack(x, axis)}; });
  }
}

// First, middle, and last axes; fewer indices than elements, and more, so that some repeat.
void add_gather(OpCases& cases) {
  struct Along {
    Shape x;
    int axis;
    std::int64_t count;
  };
  for (const auto& [x, axis, count] : std::vector<Along>{{{1}, 0, 1},
                                                         {{7}, 0, 3},
                                                         {{3, 5}, 0, 9},
                                                         {{3, 5}, 1, 2},
                                                         {{2, 4, 3}, 1, 11},
                                                         {{37, 61}, -1, 130},
                                                         {{3, 5}, 0, 0}}) {
    Shape index = x;
    const std::size_t a = axis < 0 ? x.size() - 1 : static_cast<std::size_t>(axis);
    index[a] = count;
    const InputSpec indices = i32(index, 0, static_cast<double>(x[a] - 1));
    const std::string name = fmt::format("{}_axis{}_by{}", shape_name(x), a, count);
    add_moved(cases, "gather_" + name, {f32(x), indices},
              [axis = axis](const Tensors& in) { return Tensors{gather(in[0], axis, in[1])}; });
    add_moved(cases, "scatter_add_" + name, {f32(x), indices, f32(index)},
              [axis = axis](const Tensors& in) { return Tensors{scatter_add(in[0], axis, in[1], in[2])}; });
    add_moved(cases, "scatter_add_onto_" + name, {f32(index), indices, f32(x)},
              [a, n = x[a]](const Tensors& in) {
                return Tensors{apply_op1(std::make_shared<ScatterAddOp>(static_cast<int>(a), n), in)};
              });
  }
}

// Tables of one row, of one column, of vectors, of rows with several axes; ids of every rank, and no ids.
void add_embedding(OpCases& cases) {
  for (const auto& [table, ids] : std::vector<std::pair<Shape, Shape>>{{{1, 1}, {1}},
                                                                       {{5, 3}, {}},
                                                                       {{4}, {7}},
                                                                       {{9, 5}, {2, 3}},
                                                                       {{3, 2, 3}, {5}},
                                                                       {{501, 129}, {33, 17}},
                                                                       {{7, 300}, {1201}},
                                                                       {{5, 3}, {0, 2}}}) {
    const InputSpec indices = i32(ids, 0, static_cast<double>(table[0] - 1));
    const std::string name = shape_name(table) + "_by_" + shape_name(ids);
    add_moved(cases, "embedding_" + name, {f32(table), indices},
              [](const Tensors& in) { return Tensors{embedding(in[0], in[1])}; });
    Shape rows = ids;
    rows.insert(rows.end(), table.begin() + 1, table.end());
    add_moved(cases, "embedding_grad_onto_" + name, {f32(rows), indices, f32(table)},
              [n = table[0]](const Tensors& in) {
                return Tensors{apply_op1(std::make_shared<EmbeddingGradOp>(n), in)};
              });
    for (DType dtype : {DType::f32, DType::bf16, DType::u8, DType::b8, DType::i64}) {
      OpCase c{fmt::format("one_hot_{}_{}", name_of(dtype), name),
               {indices},
               [=, n = table[0]](const Tensors& in) { return Tensors{one_hot(in[0], n, dtype)}; }};
      c.no_gradient = "integers have no derivative";
      c.exact = c.any_team = true;
      cases.push_back(c);
    }
  }
}

// One table and several, of one row and of many; one place, several, and none; samples without any row; and
// enough for a team.
void add_embedding_bag(OpCases& cases) {
  struct Bag {
    std::vector<std::int64_t> rows;
    std::int64_t features, samples, places;
  };
  for (const Bag& b : std::vector<Bag>{{{1}, 1, 1, 1},
                                       {{5}, 3, 4, 1},
                                       {{3, 9}, 5, 7, 2},
                                       {{2, 40, 7}, 8, 3, 5},
                                       {{4, 4}, 6, 0, 2},
                                       {{4, 4}, 6, 2, 0},
                                       {{301, 2, 17, 64}, 33, 65, 3},
                                       {{30, 200}, 128, 129, 1},
                                       {{600, 40}, 65, 530, 2}})
    for (const BagMode mode : {BagMode::sum, BagMode::mean}) {
      OpCase c{fmt::format("embedding_bag_{}_{}_{}x{}x{}", mode == BagMode::sum ? "sum" : "mean",
                           fmt::join(b.rows, "_"), b.samples, b.places, b.features),
               {},
               [mode](const Tensors& in) {
                 return Tensors{embedding_bag(Tensors(in.begin(), in.end() - 1), in.back(), mode)};
               }};
      for (const std::int64_t rows : b.rows) c.inputs.push_back(f32({rows, b.features}));
      const auto least = *std::ranges::min_element(b.rows);
      c.inputs.push_back(i32({b.samples, std::ssize(b.rows), b.places}, -1, static_cast<double>(least - 1)));
      c.any_team = true;
      cases.push_back(c);
      if (b.samples * b.places > 0 && b.samples < 10) cases.push_back(derivative_of(c));
    }
}

// Indices of the other integer types.
void add_wide_indices(OpCases& cases) {
  for (const Shape& shape : {Shape{1}, Shape{4, 3}, Shape{0, 3}, Shape{257, 33}})
    for (DType dtype : {DType::i64, DType::u8}) {
      const InputSpec indices{{dtype, shape}, 0, 4};
      OpCase c{fmt::format("index32_{}_{}", name_of(dtype), shape_name(shape)),
               {indices},
               [](const Tensors& in) { return Tensors{index32(in[0])}; }};
      c.no_gradient = "integers have no derivative";
      c.exact = c.any_team = true;
      cases.push_back(c);
      add_moved(cases, fmt::format("embedding_{}_{}", name_of(dtype), shape_name(shape)),
                {f32({5, 2}), indices}, [](const Tensors& in) { return Tensors{embedding(in[0], in[1])}; });
    }
}

}  // namespace

OpCases shape_cases() {
  OpCases cases;
  add_reshape(cases);
  add_transpose(cases);
  add_concat(cases);
  add_slice_and_pad(cases);
  add_strided_slice(cases);
  add_moved(cases, "pad_0x3", {f32({0, 3})}, [](const Tensors& x) { return Tensors{pad(x[0], 0, 1, 2)}; });
  add_broadcast(cases);
  add_flip(cases);
  add_split_and_stack(cases);
  add_gather(cases);
  add_embedding(cases);
  add_embedding_bag(cases);
  add_wide_indices(cases);
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{2, 5, 3}, Shape{65, 130}})
    for (const std::int64_t diagonal : {-1, 0, 2}) {
      const std::string name = fmt::format("{}_{}", shape_name(shape), diagonal + 1);
      add_moved(cases, "tril_" + name, {f32(shape)},
                [=](const Tensors& x) { return Tensors{tril(x[0], diagonal)}; });
      add_moved(cases, "triu_" + name, {f32(shape)},
                [=](const Tensors& x) { return Tensors{triu(x[0], diagonal)}; });
    }
  add_moved(cases, "index_3x5x4", {f32({3, 5, 4})}, [](const Tensors& x) {
    return Tensors{x[0][-1], x[0](1, Slice{1, -1}), x[0](Slice{}, 2, Slice{.step = 3}), x[0][0][1][2]};
  });
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{129, 65}})
    add_moved(cases, "copies_" + shape_name(shape), {f32(shape)}, [](const Tensors& x) {
      return Tensors{copy_in(copy_out(x[0])), apply_op1(std::make_shared<CopyOp>(), {x[0]})};
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

}  // namespace tandem::testing
