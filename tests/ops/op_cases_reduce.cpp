#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/ops/reduce.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct AxesCase {
  Shape shape;
  std::vector<int> axes;
};
// Leading axes (a bias gradient), the last axis, one in the middle, alternating axes, all; large, odd,
// single, and no elements.
const std::vector<AxesCase> kAxes{{{1}, {0}},
                                  {{7}, {0}},
                                  {{3, 5}, {0}},
                                  {{3, 5}, {1}},
                                  {{4, 3, 5}, {1}},
                                  {{4, 3, 5, 2}, {0, 2}},
                                  {{6, 9, 11, 16}, {0, 1, 2}},
                                  {{2, 3000}, {1}},
                                  {{67, 1030}, {0}},
                                  {{3001, 3}, {0}},
                                  {{70001}, {0}},
                                  {{2, 257, 130}, {1}},
                                  {{701, 601}, {0}},
                                  {{0, 3}, {0}},
                                  {{0, 3}, {1}},
                                  {{3, 0, 2}, {0, 2}}};

std::string axes_name(const AxesCase& a) {
  return fmt::format("{}_over_{}", shape_name(a.shape), fmt::join(a.axes, "_"));
}

bool reduces_nothing(const AxesCase& a) {
  return std::any_of(a.axes.begin(), a.axes.end(),
                     [&](int axis) { return a.shape[static_cast<std::size_t>(axis)] == 0; });
}
bool is_large(const AxesCase& a) { return element_count(a.shape) > 20000; }

void add_reductions(OpCases& cases) {
  for (const AxesCase& a : kAxes)
    for (bool keep : {false, true}) {
      const std::string name = axes_name(a) + (keep ? "_kept" : "");
      const auto add = [&](const char* op, InputSpec input, Tensor (*function)(const Tensor&, Axes, bool),
                           bool twice = true) {
        OpCase c{fmt::format("{}_{}", op, name), {std::move(input)}, [=](const Tensors& x) {
                   return Tensors{function(x[0], a.axes, keep)};
                 }};
        c.any_team = true;
        cases.push_back(c);
        if (!keep && twice && !is_large(a) && element_count(a.shape) > 0) cases.push_back(derivative_of(c));
      };
      if (keep && is_large(a)) continue;
      add("sum", f32(a.shape, -1, 2), sum);
      add("mean", f32(a.shape, -1, 2), mean);
      if (reduces_nothing(a)) continue;
      add("max", f32_distinct(a.shape, -40, 40), max);
      add("min", f32_distinct(a.shape, -40, 40), min);
      if (is_large(a)) continue;  // the other ops consist of ops that were checked with large shapes
      add("variance", f32(a.shape, -1, 2), [](const Tensor& x, Axes axes, bool k) {
        return variance(x, std::move(axes), /*unbiased=*/false, k);
      });
      add("l2_norm", f32(a.shape, -1, 2, 0.1), l2_norm, a.shape != Shape{1});  // |x|'' cancels to 0
      if (a.shape[0] > 1)
        add("variance_unbiased", f32(a.shape, -1, 2), [](const Tensor& x, Axes axes, bool k) {
          return variance(x, std::move(axes), /*unbiased=*/true, k);
        });
    }
}

void add_sums_of_other_dtypes(OpCases& cases) {
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{37, 61}})
    for (DType dtype : {DType::i32, DType::u8, DType::b8, DType::bf16}) {
      OpCase c{fmt::format("sum_{}_{}", name_of(dtype), shape_name(shape)),
               {{{dtype, shape}, 0, 1}},
               [](const Tensors& x) { return Tensors{sum(x[0])}; }};
      if (!is_floating(dtype)) c.no_gradient = "integers have no derivative";
      c.no_finite_difference = "bf16 does not resolve the step";
      c.exact = c.any_team = true;
      cases.push_back(c);
    }
}

void add_searches(OpCases& cases) {
  std::vector<AxesCase> searched = kAxes;
  searched.insert(searched.end(), {{{3, 1}, {1}}, {{2, 3, 10}, {2}}, {{129, 1001}, {1}}});
  for (const AxesCase& a : searched) {
    if (a.axes.size() > 1 || reduces_nothing(a)) continue;
    const auto add = [&](const char* op, Tensor (*function)(const Tensor&, int)) {
      OpCase c{fmt::format("{}_{}", op, axes_name(a)),
               {f32_distinct(a.shape)},
               [=, axis = a.axes[0]](const Tensors& x) { return Tensors{function(x[0], axis)}; }};
      c.no_gradient = "an index is constant almost everywhere";
      c.exact = c.any_team = true;
      cases.push_back(c);
    };
    add("argmax", argmax);
    add("argmin", argmin);
  }
}

void add_sum_to(OpCases& cases) {
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{{{3, 5}, {5}},
                                                                     {{3, 5}, {3, 1}},
                                                                     {{2, 3, 5}, {3, 1}},
                                                                     {{2, 3, 5}, {}},
                                                                     {{4, 1, 6}, {1, 6}},
                                                                     {{31, 47, 3}, {1, 1, 3}}}) {
    OpCase c{fmt::format("sum_to_{}_{}", shape_name(from), shape_name(to)),
             {f32(from)},
             [to = to](const Tensors& x) { return Tensors{sum_to(x[0], to)}; }};
    c.any_team = true;
    cases.push_back(c);
  }
}

}  // namespace

OpCases reduce_cases() {
  OpCases cases;
  add_reductions(cases);
  add_sums_of_other_dtypes(cases);
  add_searches(cases);
  add_sum_to(cases);
  return cases;
}

}  // namespace tandem::testing
