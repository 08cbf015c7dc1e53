// Convolutions, pooling and batch norm.
#include <fmt/format.h>

#include <tandem/ops/apply.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/interpolate.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct ConvCase {
  Shape image;  // (N,H,W,C)
  std::int64_t out;
  Size2 kernel = 1;
  Conv2dOptions options = {};
};
const std::vector<ConvCase> kConvolutions{
    {{1, 1, 1, 1}, 1},
    {{2, 5, 7, 3}, 4, 3, {.padding = 1}},
    {{2, 8, 8, 4}, 6, 3, {.stride = 2, .padding = 1}},
    {{1, 9, 6, 5}, 2, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
    {{2, 7, 7, 3}, 8, 3, {.padding = 2, .dilation = 2}},
    {{1, 8, 9, 2}, 3, {3, 2}, {.stride = {1, 2}, .padding = {0, 2}, .dilation = {3, 2}}},
    {{2, 6, 6, 16}, 32, 1},
    {{3, 5, 5, 8}, 16, 1, {.stride = 2}},
    {{2, 13, 11, 3}, 16, 7, {.stride = 2, .padding = 3}},
    {{1, 4, 9, 17}, 5, {1, 7}, {.padding = {0, 3}}},
    {{1, 3, 3, 2}, 3, 3},
    {{2, 6, 5, 4}, 6, 3, {.padding = 1, .groups = 2}},
    {{1, 5, 5, 8}, 8, 3, {.stride = 2, .padding = 1, .groups = 8}},
    {{1, 7, 6, 1}, 1, 3, {.padding = 1, .groups = 1}},  // depthwise from here on
    {{2, 7, 9, 6}, 6, 3, {.padding = 1, .groups = 6}},
    {{1, 6, 5, 3}, 6, 3, {.groups = 3}},  // two outputs per channel
    {{2, 8, 9, 16}, 16, 5, {.stride = 2, .padding = 2, .groups = 16}},
    {{1, 9, 7, 5}, 5, {3, 2}, {.padding = 2, .dilation = {2, 3}, .groups = 5}},
    {{2, 5, 4, 33}, 33, {1, 3}, {.stride = {1, 2}, .groups = 33}},
    {{3, 8, 8, 64}, 32, 3, {.padding = 1}},
    {{1, 9, 10, 2}, 3, 2, {.stride = 4}},
    {{4, 2, 1, 8}, 8, 3, {.stride = {1, 2}, .padding = 1}},  // columns of the kernel that only see padding
    {{1, 4, 5, 3}, 2, 3, {.padding = 5}},                    // windows that only see padding
    {{2, 3, 4, 2}, 3, {2, 1}, {.stride = {3, 4}, .padding = {4, 2}}},
};

std::string name_of(const ConvCase& c) {
  const auto& o = c.options;
  return fmt::format("{}_to_{}_k{}_s{}_p{}_d{}_g{}", shape_name(c.image), c.out, to_string(c.kernel),
                     to_string(o.stride), to_string(o.padding), to_string(o.dilation), o.groups);
}

struct TransposedCase {
  Shape image;  // (N,H,W,C)
  std::int64_t out;
  Size2 kernel = 1;
  ConvTranspose2dOptions options = {};
};
const std::vector<TransposedCase> kTransposed{
    {{1, 1, 1, 1}, 1},
    {{2, 3, 4, 3}, 4, 3},
    {{2, 4, 5, 3}, 2, 2, {.stride = 2}},
    {{1, 5, 3, 4}, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1}},
    {{2, 3, 3, 2}, 3, {3, 2}, {.stride = {3, 2}, .padding = {1, 0}, .output_padding = {2, 0}}},
    {{1, 4, 4, 3}, 2, 3, {.padding = 2, .dilation = 2}},
    {{2, 4, 3, 6}, 4, 3, {.stride = 2, .padding = 1, .groups = 2}},
    {{1, 5, 5, 4}, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 4}},
    {{3, 8, 7, 32}, 16, 4, {.stride = 2, .padding = 1}},
};

struct PoolCase {
  Shape image;
  Pool2dOptions options;
};
const std::vector<PoolCase> kPools{{{1, 1, 1, 1}, {1}},
                                   {{2, 4, 6, 3}, {2}},
                                   {{2, 5, 7, 4}, {2}},
                                   {{1, 7, 7, 65}, {3, 2, 1}},
                                   {{2, 6, 5, 2}, {{3, 2}, {1, 2}, {1, 0}}},
                                   {{1, 9, 8, 130}, {3, 1, 1}},
                                   {{2, 7, 7, 3}, {{2, 3}, {3, 4}}},
                                   {{1, 18, 17, 2}, {17, 1, 8}},
                                   {{2, 32, 32, 64}, {2}},
                                   {{1, 1, 1, 1}, Pool2dOptions::adaptive(1)},
                                   {{2, 6, 4, 3}, Pool2dOptions::adaptive({3, 2})},  // windows of equal size
                                   {{2, 5, 7, 3}, Pool2dOptions::adaptive({3, 2})},
                                   {{1, 7, 11, 2}, Pool2dOptions::adaptive({5, 4})},
                                   {{2, 3, 2, 5}, Pool2dOptions::adaptive({7, 2})},  // more windows than rows
                                   {{1, 40, 37, 2}, Pool2dOptions::adaptive({2, 1})},  // more than 256 taps
                                   {{2, 23, 17, 70}, Pool2dOptions::adaptive(7)}};

std::string name_of(const PoolCase& c) {
  if (c.options.output != Size2(0))
    return fmt::format("{}_to_{}", shape_name(c.image), to_string(c.options.output));
  return fmt::format("{}_k{}_s{}_p{}", shape_name(c.image), to_string(c.options.kernel),
                     to_string(c.options.stride), to_string(c.options.padding));
}

}  // namespace

OpCases conv_cases() {
  // Which convolutions do that depends on the processor.
  const char* kPaddingCounts = "the library may multiply padding with weights and gradients, and 0·∞ is NaN";
  OpCases cases;
  for (const ConvCase& k : kConvolutions)
    for (bool bias : {false, true}) {
      OpCase c{fmt::format("conv2d_{}{}", name_of(k), bias ? "_bias" : ""),
               {f32(k.image), f32({k.out, k.kernel.h, k.kernel.w, k.image[3] / k.options.groups})},
               [o = k.options](const Tensors& in) {
                 return Tensors{conv2d(in[0], in[1], in.size() == 3 ? in[2] : Tensor(), o)};
               }};
      if (bias) c.inputs.push_back(f32({k.out}));
      if (k.options.padding != Size2(0)) c.more_nan = kPaddingCounts;
      cases.push_back(c);
      if (element_count(k.image) < 300) cases.push_back(derivative_of(c));
    }
  for (const TransposedCase& k : kTransposed)
    for (bool bias : {false, true}) {
      const auto& o = k.options;
      OpCase c{fmt::format("conv_transpose2d_{}_to_{}_k{}_s{}_p{}_o{}_d{}_g{}{}", shape_name(k.image), k.out,
                           to_string(k.kernel), to_string(o.stride), to_string(o.padding),
                           to_string(o.output_padding), to_string(o.dilation), o.groups, bias ? "_bias" : ""),
               {f32(k.image), f32({k.image[3], k.kernel.h, k.kernel.w, k.out / o.groups})},
               [o](const Tensors& in) {
                 return Tensors{conv_transpose2d(in[0], in[1], in.size() == 3 ? in[2] : Tensor(), o)};
               }};
      if (bias) c.inputs.push_back(f32({k.out}));
      if (o.padding != Size2(0) || o.dilation != Size2(1)) c.more_nan = kPaddingCounts;
      cases.push_back(c);
      if (element_count(k.image) < 300) cases.push_back(derivative_of(c));
    }
  return cases;
}

OpCases pool_cases() {
  OpCases cases;
  for (const PoolCase& k : kPools) {
    const bool small = element_count(k.image) < 700;
    OpCase m{"max_pool2d_" + name_of(k), {f32_distinct(k.image, -40, 40)}, [o = k.options](const Tensors& x) {
               return Tensors{max_pool2d(x[0], o)};
             }};
    m.exact = m.any_team = true;
    cases.push_back(m);
    if (small) cases.push_back(derivative_of(m));
    for (bool count : {true, false}) {
      if (!count && k.options.padding == Size2(0)) continue;
      Pool2dOptions options(k.options.kernel, k.options.stride, k.options.padding, count);
      OpCase a{fmt::format("avg_pool2d_{}_{}", name_of(k), count ? "all" : "covered"),
               {f32(k.image)},
               [options](const Tensors& x) { return Tensors{avg_pool2d(x[0], options)}; }};
      a.any_team = true;
      cases.push_back(a);
      if (small) cases.push_back(derivative_of(a));
    }
  }
  OpCase equal{"max_pool2d_of_equals", {f32_whole({2, 6, 6, 5}, 0, 2)}, [](const Tensors& x) {
                 return apply_op(std::make_shared<MaxPool2dOp>(Pool2dOptions(3, 1, 1)), {x[0]});
               }};
  equal.no_finite_difference = "where two are equal there is no derivative";
  equal.exact = equal.any_team = true;
  cases.push_back(equal);
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{3, 5, 4, 7}, Shape{2, 9, 1, 3}, Shape{4, 16, 15, 33},
                             Shape{1, 2, 7, 300}, Shape{9, 7, 7, 64}}) {
    OpCase mean{"global_avg_pool2d_" + shape_name(shape), {f32(shape)}, [](const Tensors& x) {
                  return Tensors{global_avg_pool2d(x[0])};
                }};
    OpCase largest{"global_max_pool2d_" + shape_name(shape),
                   {f32_distinct(shape, -40, 40)},
                   [](const Tensors& x) { return Tensors{global_max_pool2d(x[0])}; }};
    mean.any_team = largest.any_team = largest.exact = true;
    cases.push_back(mean);
    cases.push_back(largest);
  }
  for (const Shape& image : {Shape{1, 1, 1, 1}, Shape{2, 4, 6, 3}, Shape{1, 5, 3, 2}, Shape{3, 9, 8, 20}})
    for (const Size2 size : {Size2(1), Size2(3, 2), Size2(8, 12), Size2(7)})
      for (const InterpolateOptions& o :
           {InterpolateOptions{size}, InterpolateOptions{size, Interpolation::bilinear},
            InterpolateOptions{size, Interpolation::bilinear, true}}) {
        OpCase c{fmt::format("interpolate{}{}_{}_to_{}", static_cast<int>(o.mode), int{o.align_corners},
                             shape_name(image), to_string(size)),
                 {f32(image)},
                 [o](const Tensors& x) { return Tensors{interpolate(x[0], o)}; }};
        c.any_team = true;
        cases.push_back(c);
        if (element_count(image) < 200) cases.push_back(derivative_of(c));
      }
  return cases;
}

namespace {

// Every kind of group norm: one row, few and many samples, groups of one channel, odd numbers, and more
// pixels and channels than a block.
void add_group_norms(OpCases& cases) {
  const auto add = [&](std::string name, std::vector<InputSpec> inputs,
                       std::function<Tensors(const Tensors&)> apply) {
    OpCase c{std::move(name), std::move(inputs), std::move(apply)};
    c.any_team = true;
    cases.push_back(c);
    if (element_count(c.inputs[0].type.shape) > 200) return;
    c = derivative_of(c);
    c.no_gradient = "the derivative is fused, and has none of its own";
    cases.push_back(c);
  };
  for (const Shape& shape : {Shape{3}, Shape{1, 7}, Shape{5, 2}, Shape{2, 3, 33}, Shape{67, 130},
                             Shape{2, 4, 3, 16}, Shape{1, 5000}, Shape{300, 257}}) {
    const InputSpec x = f32(shape, -1, 3), c = f32_wide({shape.back()}, 0.5, 2);
    add("layer_norm_" + shape_name(shape), {x, c, c},
        [](const Tensors& in) { return Tensors{layer_norm(in[0], in[1], in[2], 1e-2)}; });
    add("rms_norm_" + shape_name(shape), {x, c},
        [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], 1e-2)}; });
  }
  for (const auto& [shape, groups] : std::vector<std::pair<Shape, std::int64_t>>{{{1, 6}, 2},
                                                                                 {{2, 3, 3, 6}, 1},
                                                                                 {{3, 5, 6}, 2},
                                                                                 {{2, 3, 5, 7}, 7},
                                                                                 {{4, 9, 11, 32}, 4},
                                                                                 {{35, 6, 6, 30}, 6},
                                                                                 {{2, 33, 17, 64}, 32}}) {
    const InputSpec x = f32(shape, -1, 3), c = f32_wide({shape.back()}, 0.5, 2);
    add(fmt::format("group_norm_{}_g{}", shape_name(shape), groups), {x, c, c},
        [groups = groups](const Tensors& in) {
          return Tensors{group_norm(in[0], groups, in[1], in[2], 1e-2)};
        });
  }
}

// The sums of batch norm's derivative if the gradient came through a relu.
OpCase sums_of_expression(const Shape& shape) {
  OpCase c{
      "batch_norm_sums_" + shape_name(shape),
      {f32(shape), f32_wide({shape.back()}), f32(shape), f32(shape)},
      [](const Tensors& in) {
        using Code = PointwiseCode;
        PointwiseExpression masked{
            {Code::input, 0}, {Code::input, 1}, {Code::constant}, {Code::le, 1, 2}, {Code::where, 3, 2, 0}};
        return apply_op(std::make_shared<BatchNormSumsOp>(std::move(masked), in[2].dtype()), in);
      }};
  c.any_team = true;
  c.no_gradient = "expressions are put into it after differentiation";
  return c;
}

}  // namespace

OpCases norm_cases() {
  OpCases cases;
  add_group_norms(cases);
  for (const Shape& shape : {Shape{5, 1}, Shape{1, 3}, Shape{7, 3}, Shape{4, 3, 2, 5}, Shape{3, 5, 7, 130},
                             Shape{8, 16, 16, 16}, Shape{2, 33, 17, 64}, Shape{6, 700}}) {
    const InputSpec channels = f32_wide({shape.back()}, 0.5, 2);
    OpCase c{"batch_norm_" + shape_name(shape),
             {f32(shape, -1, 3), channels, channels},
             [](const Tensors& in) { return apply_op(std::make_shared<BatchNormOp>(1e-2), in); }};
    c.any_team = true;
    if (shape[0] == 1) c.no_bf16_in_turn = "the derivatives of one row cancel to 0, their roundings do not";
    if (element_count(shape) < 200) cases.push_back(derivative_of(c));
    cases.push_back(c);
    c.name = "batch_norm_in_parts_" + shape_name(shape);
    c.apply = [](const Tensors& in) { return batch_norm_in_parts(BatchNormOp(1e-2), in[0], in[1], in[2]); };
    if (element_count(shape) < 200) cases.push_back(derivative_of(c));
    cases.push_back(c);
    cases.push_back(sums_of_expression(shape));
    OpCase i{
        "batch_norm_inference_" + shape_name(shape),
        {f32(shape), channels, channels, f32_wide({shape.back()}), channels},
        [](const Tensors& in) { return Tensors{batch_norm_inference(in[0], in[1], in[2], in[3], in[4])}; }};
    i.any_team = true;
    cases.push_back(i);
  }
  return cases;
}

}  // namespace tandem::testing
