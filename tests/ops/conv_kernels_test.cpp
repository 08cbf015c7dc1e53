// CPU convolutions that are not computed as plain sums: Winograd transforms, computation in parts, dense
// products.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/team.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "fenced.h"
#include "op_case.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct ConvShape {
  std::int64_t n;
  Size2 image;
  std::int64_t in, out;
  Size2 kernel = 3;
  Conv2dOptions options = {.padding = 1};

  std::string name() const {
    return fmt::format("{}x{}x{} -> {} kernel {} stride {} padding {} dilation {}", n, to_string(image), in,
                       out, to_string(kernel), to_string(options.stride), to_string(options.padding),
                       to_string(options.dilation));
  }
};

// A convolution with a bias, its two gradients, and the types of their inputs.
struct Conv {
  explicit Conv(const ConvShape& s)
      : forward(std::make_shared<Conv2dOp>(s.options)),
        grad_input(std::make_shared<Conv2dGradInputOp>(s.options, s.image)),
        grad_weight(std::make_shared<Conv2dGradWeightOp>(s.options, s.kernel, true)),
        x{DType::f32, {s.n, s.image.h, s.image.w, s.in}},
        w{DType::f32, {s.out, s.kernel.h, s.kernel.w, s.in}},
        bias{DType::f32, {s.out}},
        y(forward->infer(std::vector{x, w, bias})[0]) {}

  OpPtr forward, grad_input, grad_weight;
  TensorType x, w, bias, y;
};
struct Values {
  Values(const Conv& c, std::mt19937_64& rng)
      : x(draw({c.x}, 0, 1, rng)),
        w(draw({c.w}, 0, 1, rng)),
        bias(draw({c.bias}, 0, 1, rng)),
        dy(draw({c.y}, 0, 1, rng)) {}
  Tensor x, w, bias, dy;
};

double relative_error(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<double> values = actual.values();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

void expect_as_in_double(const ConvShape& shape, std::mt19937_64& rng) {
  const Conv conv(shape);
  const Values v(conv, rng);
  for (const auto& [op, inputs] : std::vector<std::pair<OpPtr, Tensors>>{{conv.forward, {v.x, v.w, v.bias}},
                                                                         {conv.grad_input, {v.dy, v.w}},
                                                                         {conv.grad_weight, {v.x, v.dy}}}) {
    Tensors wide;
    for (const Tensor& t : inputs) wide.push_back(cast(t, DType::f64));
    const Tensors actual = compute_fenced(op, inputs), expected = evaluate(reference_kernels(), op, wide);
    for (std::size_t i = 0; i < actual.size(); ++i)
      EXPECT_LE(relative_error(actual[i], expected[i].values()), 1e-5)
          << op->name() << " output " << i << " of " << shape.name();
  }
}

TEST(ConvKernels, ManyChannelsMatchDoublePrecision) {
  auto rng = generator("winograd");
  for (const ConvShape& shape : std::vector<ConvShape>{{3, 4, 32, 32},
                                                       {2, 8, 48, 32},
                                                       {5, {7, 8}, 32, 80},
                                                       {1, {16, 11}, 64, 33},
                                                       {2, {12, 3}, 40, 64},
                                                       {2, 8, 32, 32, 3, {.padding = 0}},
                                                       {2, 9, 32, 32, 3, {.padding = 2}},
                                                       {2, 8, 32, 32, 3, {.stride = 2, .padding = 1}},
                                                       {2, 8, 32, 32, 3, {.padding = 2, .dilation = 2}},
                                                       {36, {31, 30}, 64, 36},
                                                       {24, {18, 34}, 64, 80},
                                                       {48, {11, 15}, 96, 70},
                                                       {33, {32, 30}, 32, 40}})
    expect_as_in_double(shape, rng);
}

TEST(ConvKernels, ImagesSmallerThanTheKernelMatchDoublePrecision) {
  auto rng = generator("dense");
  for (const ConvShape& shape :
       std::vector<ConvShape>{{32, 1, 16, 24},
                              {33, 2, 5, 7},
                              {64, 2, 40, 24},
                              {32, {1, 3}, 8, 12},
                              {40, {2, 1}, 9, 3},
                              {32, 2, 8, 8, 3, {.stride = 2, .padding = 1}},
                              {32, 2, 8, 8, 3, {.padding = 2, .dilation = 2}},
                              {32, 2, 8, 8, 3, {.padding = 3}},
                              {32, 3, 6, 10, 5, {.stride = {2, 1}, .padding = {2, 1}}},
                              {32, 3, 6, 10, 5, {.padding = 1}}})
    expect_as_in_double(shape, rng);
}

// Each shape takes more than one part: of the batch (whose gradients are added), and of the outputs and
// inputs.
TEST(ConvKernels, LargeBatchesMatchTheirParts) {
  auto rng = generator("parts");
  for (const ConvShape& shape :
       std::vector<ConvShape>{{64, 32, 64, 64}, {32, 16, 128, 160}, {32, 4, 512, 512}}) {
    const Conv conv(shape);
    const Values v(conv, rng);
    const Tensor y = compute_fenced(conv.forward, {v.x, v.w, v.bias})[0];
    const Tensor dx = compute_fenced(conv.grad_input, {v.dy, v.w})[0];
    const Tensors dw = compute_fenced(conv.grad_weight, {v.x, v.dy});
    std::vector<double> ys, dxs, dws(dw[0].values().size()), dbs(dw[1].values().size());
    const std::int64_t few = shape.n / 4;
    for (std::int64_t n = 0; n < shape.n; n += few) {
      const auto sample = [&](const Tensor& t) { return slice(t, 0, n, n + few); };
      const auto append = [](std::vector<double>& all, const Tensor& t) {
        const auto values = t.values();
        all.insert(all.end(), values.begin(), values.end());
      };
      const auto add = [](std::vector<double>& sum, const Tensor& t) {
        const auto values = t.values();
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      };
      append(ys, compute_fenced(conv.forward, {sample(v.x), v.w, v.bias})[0]);
      append(dxs, compute_fenced(conv.grad_input, {sample(v.dy), v.w})[0]);
      const Tensors of_one = compute_fenced(conv.grad_weight, {sample(v.x), sample(v.dy)});
      add(dws, of_one[0]);
      add(dbs, of_one[1]);
    }
    EXPECT_LE(relative_error(y, ys), 1e-5) << shape.name();
    EXPECT_LE(relative_error(dx, dxs), 1e-5) << shape.name();
    EXPECT_LE(relative_error(dw[0], dws), 1e-5) << shape.name();
    EXPECT_LE(relative_error(dw[1], dbs), 1e-5) << shape.name();
  }
}

TEST(ConvKernels, ScratchIsSmallOrProportionalToTheOperands) {
  for (const ConvShape& shape : std::vector<ConvShape>{{128, 32, 64, 64},
                                                       {128, 16, 128, 128},
                                                       {128, 8, 256, 256},
                                                       {128, 4, 512, 512},
                                                       {127, 32, 64, 64},
                                                       {128, 8, 64, 64}}) {
    const Conv conv(shape);
    for (const auto& [op, inputs] :
         std::vector<std::pair<OpPtr, Types>>{{conv.forward, {conv.x, conv.w, conv.bias}},
                                              {conv.grad_input, {conv.y, conv.w}},
                                              {conv.grad_weight, {conv.x, conv.y}}}) {
      const Types outputs = op->infer(inputs);
      std::int64_t operands = 0;
      for (const Types& some : {inputs, outputs})
        for (const TensorType& t : some) operands += t.bytes();
      const std::int64_t scratch = cpu_kernels().make({*op, inputs, outputs, {}, 2})->workspace();
      EXPECT_LE(scratch, std::max<std::int64_t>(24 << 20, 2 * operands))
          << op->name() << " of " << shape.name();
    }
  }
}

}  // namespace
}  // namespace tandem::testing
