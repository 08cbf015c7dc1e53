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
#include <tandem/ops/cpu/conv_dense.h>
#include <tandem/ops/cpu/conv_grad_weight.h>
#include <tandem/ops/cpu/conv_unfolded.h>
#include <tandem/ops/cpu/onednn.h>
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

struct OpOnTypes {
  OpPtr op;
  Types inputs;
};

// A convolution, its two gradients, and the types of their inputs.
struct Conv {
  explicit Conv(const ConvShape& s, DType dtype = DType::f32, bool has_bias = true)
      : forward(std::make_shared<Conv2dOp>(s.options)),
        grad_input(std::make_shared<Conv2dGradInputOp>(s.options, s.image)),
        grad_weight(std::make_shared<Conv2dGradWeightOp>(s.options, s.kernel, has_bias)),
        has_bias(has_bias),
        x{dtype, {s.n, s.image.h, s.image.w, s.in}},
        w{dtype, {s.out, s.kernel.h, s.kernel.w, s.in / s.options.groups}},
        bias{dtype, {s.out}},
        y(forward->infer(std::vector{x, w, bias})[0]) {}
  std::vector<OpOnTypes> ops() const {
    return {
        {forward, has_bias ? Types{x, w, bias} : Types{x, w}}, {grad_input, {y, w}}, {grad_weight, {x, y}}};
  }

  OpPtr forward, grad_input, grad_weight;
  bool has_bias;
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

void expect_as_in_double(const ConvShape& shape, std::mt19937_64& rng, DType dtype = DType::f32,
                         int threads = 2, bool bias = true) {
  for (const OpOnTypes& o : Conv(shape, dtype, bias).ops()) {
    Tensors inputs, wide;
    for (const TensorType& t : o.inputs) {
      inputs.push_back(draw({t}, 0, 1, rng));
      wide.push_back(cast(inputs.back(), DType::f64));
    }
    const Tensors actual = compute_fenced(o.op, inputs, threads),
                  expected = evaluate(reference_kernels(), o.op, wide);
    for (std::size_t i = 0; i < actual.size(); ++i)
      EXPECT_LE(relative_error(actual[i], expected[i].values()), dtype == DType::bf16 ? 1.0 / 256 : 1e-5)
          << o.op->name() << " output " << i << " of " << shape.name() << " by " << threads << " threads";
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

TEST(ConvKernels, ConvolutionsOfSinglePixelsMatchDoublePrecision) {
  auto rng = generator("pixels");
  for (const ConvShape& shape : std::vector<ConvShape>{{2, {3, 5}, 8, 16, 1, {}},
                                                       {3, {7, 9}, 72, 40, 1, {}},
                                                       {1, {1, 6}, 130, 70, 1, {}},
                                                       {5, {9, 8}, 16, 8, 1, {}},
                                                       {2, {4, 5}, 24, 12, 1, {.padding = 1}},
                                                       {2, {4, 5}, 24, 12, 1, {.groups = 4}}})
    for (const int threads : {1, 2, 3})
      for (const bool bias : {false, true}) expect_as_in_double(shape, rng, DType::f32, threads, bias);
}

KernelPtr make_patches_grad_weight(const ConvShape& shape, int threads) {
  const OpOnTypes o = Conv(shape, DType::f32, false).ops()[2];
  return make_patches_conv2d_grad_weight({*o.op, o.inputs, o.op->infer(o.inputs), {}, threads},
                                         static_cast<const ConvolutionOp&>(*o.op).size(o.inputs), {threads});
}

// Some shapes take several blocks of patches per thread, and one has fewer pixels than threads.
TEST(ConvKernels, GradientsOfStridedAndTallWindowsAreProductsOfPatches) {
  auto rng = generator("patches");
  struct Case {
    ConvShape shape;
    bool expected;
  };
  for (const auto& [shape, expected] :
       std::vector<Case>{{{3, {9, 12}, 32, 20, 3, {.stride = 2, .padding = 1}}, true},
                         {{2, {40, 37}, 64, 9, 3, {.stride = {2, 3}}}, true},
                         {{2, {31, 40}, 40, 24, 1, {.stride = 2}}, true},
                         {{1, {5, 5}, 33, 7, 3, {.stride = 3}}, true},
                         {{1, {3, 3}, 256, 256, 3, {.stride = 2}}, true},
                         {{4, {17, 16}, 96, 40, {7, 1}, {.padding = {3, 0}}}, true},
                         {{2, {12, 9}, 32, 12, {3, 1}, {.padding = {2, 0}, .dilation = {2, 1}}}, true},
                         {{4, {17, 16}, 96, 40, {1, 7}, {.padding = {0, 3}}}, false},
                         {{3, {9, 12}, 31, 20, 3, {.stride = 2, .padding = 1}}, false},
                         {{3, {9, 12}, 64, 64, 3, {.stride = 2, .padding = 1, .groups = 2}}, false}})
    for (const int threads : {1, 2, 3}) {
      EXPECT_EQ(make_patches_grad_weight(shape, threads) != nullptr, onednn::has_gemm() && expected)
          << shape.name();
      expect_as_in_double(shape, rng, DType::f32, threads, false);
    }
  // The sums of a second thread would take 38 MB.
  EXPECT_EQ(make_patches_grad_weight({1, 9, 1024, 1024, 3, {.stride = 2}}, 2), nullptr);
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

// Products of unfolded patches, of which some shapes take several blocks, and shapes that are left to oneDNN.
TEST(ConvKernels, SixteenBitTinyImagesMatchDoublePrecision) {
  auto rng = generator("bf16 tiny images");
  for (const ConvShape& shape :
       std::vector<ConvShape>{{33, 2, 130, 136},
                              {40, {2, 1}, 24, 64},
                              {40, {1, 3}, 8, 96},
                              {1, 2, 130, 512},
                              {64, {4, 1}, 20, 128, 3, {.stride = {2, 1}, .padding = 1}},
                              {64, {1, 4}, 20, 128, 3, {.stride = {1, 2}, .padding = 1}},
                              {32, {4, 3}, 140, 384, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
                              {32, {3, 4}, 24, 384, 3, {.stride = {1, 2}, .padding = {0, 1}}},
                              {32, 2, 16, 128, 3, {.padding = 2, .dilation = 2}},
                              {32, {4, 2}, 16, 256, {2, 3}, {.padding = {0, 2}, .dilation = {3, 2}}},
                              {32, 4, 32, 512, 3, {.stride = 3, .padding = 1}},
                              {32, 5, 32, 40, 3, {.stride = 3}},
                              {33, 4, 130, 512},
                              {37, 4, 264, 512, {5, 3}, {.padding = {2, 1}}},
                              {32, 4, 40, 512, 1, {}},
                              {32, 4, 40, 512, 1, {.stride = 2}},
                              {8, 2, 40, 512, 1, {.stride = 2}},  // outputs are the image's first pixels
                              {8, {4, 3}, 24, 256, 1, {.stride = {4, 1}}},
                              {8, 3, 16, 64, 2, {.stride = 3}},
                              {2, {31, 29}, 8, 16, 3, {.padding = 2, .dilation = 2, .groups = 2}},
                              {2, {31, 29}, 15, 12, {4, 3}, {.dilation = 2, .groups = 3}},
                              {131, {2, 3}, 520, 192},
                              {96, 2, 40, 32},
                              {128, {1, 2}, 9, 130},
                              {96, 1, 24, 40, 3, {.padding = 1}}})
    for (const int threads : {1, 2, 3})
      for (const bool bias : {false, true}) expect_as_in_double(shape, rng, DType::bf16, threads, bias);
}

bool library_has_sixteen_bit_products() {
  const onednn::Operand square{DType::bf16, {64, 64}, {64, 1}};
  return onednn::matmul(square, square, nullptr, square, {2}) != nullptr;
}

// Without such products, the library's convolutions compute them.
TEST(ConvKernels, SixteenBitImagesSmallerThanTheKernelAreDenseProducts) {
  const bool library = library_has_sixteen_bit_products();
  const Conv conv({96, 2, 40, 32}, DType::bf16);
  const auto check = [&](const OpOnTypes& o, auto make) {
    const Types outputs = o.op->infer(o.inputs);
    const KernelSpec spec{*o.op, o.inputs, outputs, {}, 2};
    const KernelPtr kernel = make(spec, static_cast<const ConvolutionOp&>(*o.op).size(o.inputs));
    ASSERT_EQ(library, kernel != nullptr) << o.op->name();
    if (library) {
      EXPECT_EQ(cpu_kernels().make(spec)->workspace(), kernel->workspace()) << o.op->name();
    }
  };
  check(conv.ops()[0], make_dense_conv2d);
  check(conv.ops()[1], make_dense_conv2d_grad_input);
}

// Without AMX, the library's convolutions compute results and the gradients of images; outside of the limits,
// they compute everything.
TEST(ConvKernels, SixteenBitTinyImagesAreProductsOfPatches) {
  struct Case {
    ConvShape shape;
    bool forward, grad_input, grad_weight;  // expected with AMX
  };
  const bool amx = onednn::has_amx(), library = library_has_sixteen_bit_products();
  for (const auto& [shape, forward, grad_input, grad_weight] :
       std::vector<Case>{{{33, 2, 130, 136}, true, true, true},
                         {{33, 4, 30, 512}, true, true, true},
                         {{33, 4, 512, 130}, false, false, true},  // few filters
                         {{32, {4, 3}, 32, 400, 3, {.stride = 2, .padding = 1}}, true, true, true},
                         {{1, 2, 160, 512}, true, true, true},
                         {{32, 4, 16, 512, 1, {}}, true, true, true},
                         {{32, 5, 16, 1024, 3, {.stride = 3}}, false, false, false},
                         {{32, 4, 16, 512, 3, {.padding = 1, .groups = 2}}, false, false, false},
                         {{8192, 4, 256, 512}, true, true, false}}) {
    const std::vector<OpOnTypes> ops = Conv(shape, DType::bf16).ops();
    const auto check = [&](const OpOnTypes& o, auto make, bool expected) {
      const Types outputs = o.op->infer(o.inputs);
      const KernelSpec spec{*o.op, o.inputs, outputs, {}, 2};
      const KernelPtr kernel = make(spec, static_cast<const ConvolutionOp&>(*o.op).size(o.inputs), {2});
      EXPECT_EQ(kernel != nullptr, expected) << o.op->name() << " of " << shape.name();
      if (kernel) {
        EXPECT_EQ(cpu_kernels().make(spec)->workspace(), kernel->workspace())
            << o.op->name() << " of " << shape.name();
      }
    };
    check(ops[0], make_unfolded_conv2d, amx && forward);
    check(ops[1], make_unfolded_conv2d_grad_input, amx && grad_input);
    check(ops[2], make_unfolded_conv2d_grad_weight, library && grad_weight);
  }
}

void expect_small_scratch(const ConvShape& shape, DType dtype, int threads) {
  for (const auto& [op, inputs] : Conv(shape, dtype).ops()) {
    const Types outputs = op->infer(inputs);
    std::int64_t operands = 0;
    for (const Types& some : {inputs, outputs})
      for (const TensorType& t : some) operands += t.bytes();
    const std::int64_t scratch = cpu_kernels().make({*op, inputs, outputs, {}, threads})->workspace();
    // Without the library's products of 16 bits, a convolution computes with f32 copies.
    const bool copies = dtype == DType::bf16 && !library_has_sixteen_bit_products();
    constexpr std::int64_t kSmall = 64 << 10;  // of the library's own, beside what it was asked for
    EXPECT_LE(scratch, std::max<std::int64_t>(24 << 20, 2 * operands) + kSmall + (copies ? 2 * operands : 0))
        << op->name() << " of " << shape.name() << " in " << name_of(dtype) << " by " << threads
        << " threads";
  }
}

TEST(ConvKernels, ScratchIsSmallOrProportionalToTheOperands) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ConvShape& shape : std::vector<ConvShape>{{128, 32, 64, 64},
                                                         {128, 16, 128, 128},
                                                         {128, 8, 256, 256},
                                                         {128, 4, 512, 512},
                                                         {171, 4, 512, 512},
                                                         {128, 2, 512, 512},
                                                         {127, 32, 64, 64},
                                                         {128, 8, 64, 64}})
      expect_small_scratch(shape, dtype, 2);
}

TEST(ConvKernels, ScratchOfTinyImagesDoesNotGrowWithTheTeam) {
  const TeamSize team(16);
  for (const ConvShape& shape :
       std::vector<ConvShape>{{128, 4, 512, 512}, {171, 4, 512, 512}, {128, 2, 512, 512}, {64, 2, 512, 512}})
    expect_small_scratch(shape, DType::bf16, 16);
}

}  // namespace
}  // namespace tandem::testing
