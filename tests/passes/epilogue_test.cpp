// Products with an expression of their result: the kernels that work piece by piece, and the pass that joins
// the two ops.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/epilogue.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>
#include <tandem/plan/fuse_epilogues.h>

#include "fenced.h"
#include "op_case.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

using Code = PointwiseCode;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.type().bytes())) == 0;
}

// relu(result·scale + residual): scale per channel, residual in the result's shape.
const PointwiseExpression kExpression{{Code::input, 0}, {Code::input, 1},  {Code::mul, 0, 1},
                                      {Code::input, 2}, {Code::add, 2, 3}, {Code::relu, 4}};

struct Product {
  OpPtr op;
  Types inputs;
  int pieces;
};

std::vector<Product> products(DType dtype) {
  const auto type = [&](Shape shape) { return TensorType{dtype, std::move(shape)}; };
  const auto conv = std::make_shared<Conv2dOp>(Conv2dOptions{.padding = 1});
  const auto matmul = std::make_shared<MatMulOp>(MatMulOptions{false, true});
  return {
      {conv, {type({3, 5, 7, 4}), type({6, 3, 3, 4})}, 1},
      {conv, {type({26, 33, 40, 3}), type({64, 3, 3, 3})}, 2},
      {conv, {type({27, 33, 40, 3}), type({64, 3, 3, 3})}, 1},  // an odd number of images
      {conv, {type({64, 34, 52, 32}), type({64, 3, 3, 32}), type({64})}, 4},
      {std::make_shared<Conv2dGradInputOp>(Conv2dOptions{.stride = 2, .padding = 1}, Size2{66, 68}),
       {type({12, 33, 34, 8}), type({8, 3, 3, 48})},
       2},
      {matmul, {type({7, 5}), type({9, 5}), type({9})}, 1},
      {matmul, {type({2050, 33}), type({1100, 33}), type({1100})}, 2},
      {std::make_shared<MatMulOp>(MatMulOptions{true, false}), {type({33, 4100}), type({33, 1100})}, 4},
      {matmul, {type({3, 70, 33}), type({3, 20, 33})}, 1},
      {matmul, {type({64, 8}), type({40'000, 8})}, 1},                       // few rows
      {std::make_shared<MappedOp>(conv, std::vector<bool>{true, false}, 3),  // one model at a time
       {type({3, 26, 33, 40, 3}), type({64, 3, 3, 3})},
       6},
  };
}

void expect_bits_of_the_parts(const Product& p, std::mt19937_64& rng) {
  SCOPED_TRACE(signature(*p.op, p.inputs));
  const TensorType made = p.op->infer(p.inputs)[0];
  Tensors inputs;
  for (const TensorType& t : p.inputs) inputs.push_back(draw({t}, static_cast<int>(inputs.size()), 5, rng));
  Tensors others{draw({{made.dtype, {made.shape.back()}}}, 3, 5, rng), draw({made}, 4, 5, rng)};
  if (made.dtype == DType::f32) {  // NaN and zeros of both signs get through
    inputs[0].as<float>()[0] = std::nanf("");
    others[0].as<float>()[0] = -0.0F;
  }
  Tensors all = inputs;
  all.insert(all.end(), others.begin(), others.end());
  const auto together = std::make_shared<EpilogueOp>(p.op, inputs.size(), kExpression, "relu");
  const Tensor result = compute_fenced(p.op, inputs)[0];
  const Tensor apart = compute_fenced(std::make_shared<PointwiseOp>(kExpression, made.dtype),
                                      {result, others[0], others[1]})[0];
  EXPECT_TRUE(same_bits(apart, compute_fenced(together, all)[0]));
}

TEST(Epilogue, EqualsProductAndExpressionApartBitwise) {
  std::mt19937_64 rng = generator("epilogues");
  for (const Product& p : products(DType::f32)) expect_bits_of_the_parts(p, rng);
  for (const DType dtype : {DType::bf16, DType::f64})
    for (const Product& p : products(dtype))
      if (element_count(p.op->infer(p.inputs)[0].shape) < 10'000) expect_bits_of_the_parts(p, rng);
}

// With oneDNN only: otherwise kernels are plain loops. Each model is a piece.
TEST(Epilogue, LargeResultsAreComputedInPieces) {
  for (const Product& p : products(DType::f32)) {
    const Types made = p.op->infer(p.inputs);
    const KernelPtr kernel = cpu_kernels().make({*p.op, p.inputs, made, {}, 2});
    const auto* mapped = dynamic_cast<const MappedOp*>(p.op.get());
    const auto without = static_cast<int>(mapped ? mapped->models : 1);
    EXPECT_EQ(kernel->pieces(), TANDEM_HAS_ONEDNN ? p.pieces : without) << signature(*p.op, p.inputs);
  }
}

TEST(Epilogue, RefusesExpressionsThatChangeTheType) {
  const auto matmul = std::make_shared<MatMulOp>(MatMulOptions{});
  const Types inputs{{DType::f32, {2, 3}}, {DType::f32, {3, 4}}, {DType::f32, {5, 2, 4}}};
  const EpilogueOp larger(matmul, 2, {{Code::input, 0}, {Code::input, 1}, {Code::add, 0, 1}}, "add");
  EXPECT_THROW(larger.infer(inputs), Error);
  EXPECT_THROW(larger.infer(std::span(inputs).first(1)), Error);
}

// The graph of `f` with inputs of these types.
Graph traced(const Types& types, const std::function<Tensor(const Tensors&)>& f) {
  OpCase c{"epilogue", {}, [&](const Tensors& in) { return Tensors{f(in)}; }};
  for (const TensorType& t : types) c.inputs.push_back({t});
  return trace_case(c, DType::f32, false).graph;
}

std::vector<std::string> labels(const Graph& g) {
  std::vector<std::string> all;
  for (const Node& n : g.nodes())
    if (!n.inputs.empty()) all.push_back(n.op->label());
  return all;
}

using Labels = std::vector<std::string>;
const TensorType kMatrix{DType::f32, {4, 4}};

TEST(FuseEpilogues, JoinsAProductWithItsOnlyReader) {
  const auto fused = [](std::size_t inputs, const std::function<Tensor(const Tensors&)>& f) {
    return labels(fuse_epilogues(traced(Types(inputs, kMatrix), f)));
  };
  EXPECT_EQ(fused(2, [](const Tensors& in) { return relu(matmul(in[0], in[1])); }), Labels{"matmul + relu"});
  EXPECT_EQ(fused(2, [](const Tensors& in) { return matmul(in[0], in[1]) + in[0]; }), Labels{"matmul + add"});
  EXPECT_EQ(fused(2,
                  [](const Tensors& in) {
                    const Tensor y = matmul(in[0], in[1]);
                    return y * y;
                  }),
            Labels{"matmul + mul"});
  // The product's result has a second reader.
  EXPECT_EQ(fused(2,
                  [](const Tensors& in) {
                    const Tensor y = matmul(in[0], in[1]);
                    return matmul(relu(y), y);
                  }),
            (Labels{"matmul", "relu", "matmul"}));
  // Of two products, the last one is joined.
  EXPECT_EQ(fused(3, [](const Tensors& in) { return matmul(in[0], in[1]) + matmul(in[1], in[2]); }),
            (Labels{"matmul", "matmul + add"}));
  // Another node is computed between the two, before or after the other inputs of the expression.
  EXPECT_EQ(fused(2,
                  [](const Tensors& in) {
                    const Tensor y = matmul(in[0], in[1]), s = transpose(in[0], {1, 0});
                    return matmul(relu(y), s);
                  }),
            (Labels{"matmul + relu", "transpose", "matmul"}));
  EXPECT_EQ(fused(2,
                  [](const Tensors& in) {
                    const Tensor y = matmul(in[0], in[1]), s = transpose(in[0], {1, 0});
                    return y + s;
                  }),
            (Labels{"matmul", "transpose", "add"}));
}

TEST(FuseEpilogues, LeavesExpressionsOfAnotherTypeAlone) {
  const TensorType row{DType::f32, {1, 4}};
  EXPECT_EQ(labels(fuse_epilogues(traced({row, kMatrix, kMatrix},
                                         [](const Tensors& in) { return matmul(in[0], in[1]) + in[2]; }))),
            (Labels{"matmul", "add"}));
  EXPECT_EQ(
      labels(fuse_epilogues(traced(
          {kMatrix, kMatrix}, [](const Tensors& in) { return cast(matmul(in[0], in[1]), DType::bf16); }))),
      (Labels{"matmul", "pointwise"}));
}

struct SmallNet : nn::Module {
  nn::Conv2d conv1{*this, "conv1", {.in = 3, .out = 16, .kernel = 3, .padding = 1}},
      conv2{*this, "conv2", {.in = 16, .out = 16, .kernel = 3, .padding = 1}};
  nn::Linear hidden{*this, "hidden", {256, 24}}, head{*this, "head", {24, 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor a = relu(conv1(x)), b = max_pool2d(tanh(conv2(a) + a), Pool2dOptions(2));
    return head(gelu(hidden(flatten(b))));
  }
};

// The state is the sum of x over all forwards so far.
struct Covariance : nn::Module {
  nn::Linear head{*this, "head", {6, 5}};
  Tensor total = add_buffer("sum", Tensor::zeros({DType::f32, {6, 6}}));
  Tensor forward(const Tensor& x) override {
    const Tensor sum = add(total, matmul(x, x, {true, false}));
    assign(total, sum);
    return head(add(x, matmul(x, sum)));
  }
};

TEST(FuseEpilogues, UpdatesAStateInPlace) {
  Job job = small_residual_job();
  job.model = [] { return std::make_unique<Covariance>(); };
  job.sample = {6};
  for (const bool fuse : {false, true}) {
    Strategy s;
    s.fuse_epilogues = fuse;
    for (const MemoryBlock& b : train(job, s).program.blocks)
      if (b.arena == Arena::state) {
        EXPECT_EQ(b.slots, 1) << b.name << (fuse ? ", fused" : "");
      }
  }
}

TEST(FuseEpilogues, NetworksTrainToTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool amp : {false, true})
      for (const int models : {1, 2}) {
        if (amp && dtype == DType::f64) continue;
        SCOPED_TRACE(::testing::Message() << name_of(dtype) << (amp ? ", amp" : "") << ", models " << models);
        Job job = small_residual_job(dtype);
        job.sample = {8, 8, 3};
        job.model = [] { return std::make_unique<SmallNet>(); };
        if (models == 2) job.seeds = {3, 8}, job.rates = {0.1, 0.05};
        Strategy s;
        if (amp) s.amp = DType::bf16;
        s.fuse_epilogues = false;
        const Outcome apart = train(job, s);
        s.fuse_epilogues = true;
        const Outcome together = train(job, s);
        expect_same_results(apart, together);
        const auto epilogues = [](const Program& p) {
          return std::count_if(
              p.instructions.begin(), p.instructions.end(),
              [](const Instruction& instruction) { return instruction.op->name() == "epilogue"; });
        };
        EXPECT_EQ(epilogues(apart.program), 0);
        EXPECT_GE(epilogues(together.program), 2);
        // Of two list orders, the one whose placement is smaller is taken, and a placement can have 1 % of
        // gaps.
        EXPECT_LE(static_cast<double>(live_peak(together.program)),
                  1.01 * static_cast<double>(live_peak(apart.program)))
            << "no tensor lives longer";
      }
}

}  // namespace
}  // namespace tandem::testing
