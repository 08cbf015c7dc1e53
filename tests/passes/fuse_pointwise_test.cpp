// Expressions that become parts of others, batch norms split into parts, and cheap values that backward
// computes again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include <tandem/autograd/training_graph.h>
#include <tandem/core/graph/trace.h>
#include <tandem/memory/placement.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>
#include <tandem/plan/expand_norms.h>
#include <tandem/plan/pool_first.h>

#include "op_case.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Two convolutions with norm and relu; the second norm's output is added to the first relu's output.
struct NormNet : nn::Module {
  nn::Conv2d conv1{*this, "conv1", {.in = 3, .out = 16, .kernel = 3, .padding = 1, .bias = false}},
      conv2{*this, "conv2", {.in = 16, .out = 16, .kernel = 3, .padding = 1, .bias = false}},
      conv3{*this, "conv3", {.in = 16, .out = 16, .kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm norm1{*this, "norm1", {.channels = 16}}, norm2{*this, "norm2", {.channels = 16}},
      norm3{*this, "norm3", {.channels = 16}};
  nn::Linear head{*this, "head", {16, 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor a = relu(norm1(conv1(x))), b = relu(norm2(conv2(a)) + a);
    return head(mean(relu(norm3(conv3(b))), {1, 2}));
  }
};

Job norm_job(DType dtype = DType::f32) {
  Job job = small_residual_job(dtype);
  job.sample = {8, 8, 3};
  job.model = [] { return std::make_unique<NormNet>(); };
  return job;
}

int count_instructions(const Program& p, std::string_view name) {
  return static_cast<int>(std::count_if(p.instructions.begin(), p.instructions.end(),
                                        [&](const Instruction& s) { return s.op->name() == name; }));
}

TEST(ExpandNorms, PartsEqualTheWholeBitwise) {
  std::mt19937_64 rng = generator("norms in parts");
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const Shape& shape : {Shape{4, 7, 5, 16}, Shape{300, 3}, Shape{2, 9, 9, 700}}) {
      const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
      const InputSpec image{{dtype, shape}, -1, 3}, channels{{wide, {shape.back()}}, 0.5, 2};
      const Tensor x = draw(image, 0, 3, rng), gamma = draw(channels, 1, 3, rng),
                   beta = draw(channels, 2, 3, rng);
      const auto op = std::make_shared<BatchNormOp>(1e-3);
      const Tensors whole = apply_op(op, {x, gamma, beta}), parts = batch_norm_in_parts(*op, x, gamma, beta);
      ASSERT_EQ(whole.size(), parts.size());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        ASSERT_EQ(whole[i].type(), parts[i].type());
        EXPECT_TRUE(std::equal(whole[i].as<std::byte>(), whole[i].as<std::byte>() + whole[i].type().bytes(),
                               parts[i].as<std::byte>()))
            << name_of(dtype) << " " << shape_name(shape) << " output " << i;
      }
    }
}

TEST(FusePointwise, NormsWithReluAndResidualAreOnePassEachWay) {
  const Program p = build(trace_job(norm_job(), 32), {.recompute_cheap = false, .fuse_epilogues = false});
  EXPECT_EQ(count_instructions(p, "batch_norm"), 0);
  EXPECT_EQ(count_instructions(p, "batch_norm_statistics"), 3);
  EXPECT_EQ(count_instructions(p, "batch_norm_sums"), 3);
  int large = 0, masked_sums = 0;
  const std::int64_t bytes = 32 * 8 * 8 * 16 * 4;
  for (const Instruction& s : p.instructions) {
    large += s.op->name() == "pointwise" && s.outputs[0].bytes() == bytes;
    masked_sums += s.op->name() == "batch_norm_sums" && s.inputs.size() > 3;
  }
  // Forward has three. Backward has three gradients of convolutions and two sums, at the fork and at the
  // join.
  EXPECT_EQ(large, 8);
  EXPECT_EQ(masked_sums, 1) << "only norm3's relu has no other reader";
}

TEST(FusePointwise, NetworksWithNormsTrainToTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int models : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", models " << models);
      Job job = norm_job(dtype);
      if (models == 2) job.seeds = {3, 8}, job.rates = {0.1, 0.05};
      Strategy s;
      s.fuse_pointwise = s.recompute_cheap = false;
      const Outcome apart = train(job, s);
      s.fuse_pointwise = true;
      const Outcome fused = train(job, s);
      s.recompute_cheap = true;
      const Outcome again = train(job, s);
      expect_same_results(apart, fused);
      expect_same_results(apart, again);
    }
}

// A value with two readers; the second reader waits for a result of the first.
// The gradient of an activation becomes a part of the sums and the gradient of the norm before it, in an
// array of models as in one: both would read the statistics through views of their own.
TEST(FusePointwise, ArraysOfModelsHaveTheExpressionsOfOneModel) {
  for (Tensor (*activation)(const Tensor&) : {relu, hard_swish}) {
    struct Net : nn::Module {
      explicit Net(Tensor (*f)(const Tensor&)) : activation(f) {}
      nn::Conv2d first{*this, "first", {.in = 3, .out = 8, .kernel = 3, .padding = 1, .bias = false}},
          second{*this, "second", {.in = 8, .out = 8, .kernel = 3, .padding = 1, .bias = false}};
      nn::BatchNorm norm0{*this, "norm0", {.channels = 8}}, norm1{*this, "norm1", {.channels = 8}};
      nn::Linear head{*this, "head", {8 * 8 * 8, 5}};
      Tensor (*activation)(const Tensor&);
      Tensor forward(const Tensor& x) override {
        return head(flatten(activation(norm1(second(activation(norm0(first(x))))))));
      }
    };
    Job job = norm_job();
    job.sample = {8, 8, 3};
    job.model = [=] { return std::make_unique<Net>(activation); };
    const Graph g = trace_job(job, 16);
    const auto large_passes = [&](int models) {
      const Program p = build(g, {.models = models, .recompute_cheap = false, .fuse_epilogues = false});
      return std::ranges::count_if(p.instructions, [&](const Instruction& i) {
        return i.op && as<PointwiseOp>(i) && i.outputs[0].shape.size() == (models > 1 ? 5U : 4U);
      });
    };
    EXPECT_GT(large_passes(1), 0);
    EXPECT_EQ(large_passes(1), large_passes(2));
    EXPECT_EQ(large_passes(1), large_passes(3));
  }
}

struct Fork : nn::Module {
  nn::Linear first{*this, "first", {192, 24}}, second{*this, "second", {24, 24}},
      head{*this, "head", {24, 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor p = scale(first(flatten(x)), 2) + 1.0;
    const Tensor q = scale(second(scale(p, 3)), 0.5);
    return head(relu(p + q));
  }
};

TEST(FusePointwise, ForksTrainToTheSameBits) {
  Job job = norm_job();
  job.model = [] { return std::make_unique<Fork>(); };
  Strategy s;
  s.fuse_pointwise = false;
  const Outcome apart = train(job, s);
  expect_same_results(apart, train(job, {}));
}

TEST(FusePointwise, MixedPrecisionRoundsAsWithoutFusion) {
  Job job = norm_job();
  Strategy s;
  s.amp = DType::bf16;
  s.fuse_pointwise = s.recompute_cheap = false;
  const Outcome apart = train(job, s);
  s.fuse_pointwise = s.recompute_cheap = true;
  expect_same_results(apart, train(job, s));
}

TEST(RecomputeCheap, LowersThePeakOfNormalizedConvolutionsByAtLeastAQuarter) {
  nn::ResNet net;
  net.initialize(1);
  Job job = norm_job();
  job.sample = {32, 32, 3};
  job.model = [] { return std::make_unique<nn::ResNet>(); };
  const Graph g = trace_job(job, 64);
  const std::int64_t kept = planned_peak(build(g, {.recompute_cheap = false})),
                     again = planned_peak(build(g, {}));
  EXPECT_LT(again, 0.75 * static_cast<double>(kept));
}

// Ties at zero and at positive values, and windows with only negative values.
struct PoolNet : nn::Module {
  nn::Conv2d conv{*this, "conv", {.in = 3, .out = 8, .kernel = 3, .padding = 1}};
  nn::Linear head{*this, "head", {8 * 16, 5}};
  Tensor forward(const Tensor& x) override {
    return head(flatten(max_pool2d(relu(conv(x) + floor(scale(conv(x), 4))), Pool2dOptions(2))));
  }
};

// Including the sign of zero, and NaN.
TEST(PoolFirst, ReluAndMaxPoolingCommute) {
  std::mt19937_64 rng = generator("signed zeros");
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    std::vector<double> values(2 * 8 * 6 * 5);
    for (double& v : values)
      v = std::array{-1.0, -0.0, 0.0, 2.0, std::nan("")}[static_cast<std::size_t>(draw_int(rng, 0, 9)) % 5];
    const Tensor x = Tensor::from(values, {2, 8, 6, 5}, dtype);
    for (const Pool2dOptions& windows : {Pool2dOptions(2), Pool2dOptions(3, 1, 1)}) {
      const Tensor after = max_pool2d(relu(x), windows), before = relu(max_pool2d(x, windows));
      EXPECT_TRUE(std::equal(after.as<std::byte>(), after.as<std::byte>() + after.type().bytes(),
                             before.as<std::byte>()))
          << name_of(dtype);
    }
  }
}

TEST(PoolFirst, ChangesNoBitAndLowersThePeak) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int models : {1, 2}) {
      Job job = norm_job(dtype);
      job.model = [] { return std::make_unique<PoolNet>(); };
      if (models == 2) job.seeds = {3, 8}, job.rates = {0.1, 0.05};
      Strategy s;
      s.pool_first = s.fuse_epilogues = false;
      const Outcome after = train(job, s);
      s.pool_first = true;
      const Outcome before = train(job, s);
      expect_same_results(after, before);
      EXPECT_LT(before.planned_peak, after.planned_peak);
    }
}

// A trained weight's product is detached; what follows it needs no detach.
TEST(PoolFirst, LooksPastANoGrad) {
  Graph graph;
  {
    Trace trace(graph);
    const Tensor x = trace.input("x", {DType::f32, {2, 4, 4, 3}});
    const StateId weight = graph.add_state({"weight", {DType::f32, {3}}, /*trained=*/true});
    const NoGrad no_grad;
    trace.result("loss", mean(max_pool2d(relu(x * trace.read(weight)), Pool2dOptions(2))));
  }
  const Graph g = pool_first(remove_detaches(graph));
  std::vector<std::string> ops;
  for (const Node& node : g.nodes()) ops.push_back(node.op->label());
  EXPECT_EQ(
      (std::vector<std::string>{"input", "read", "mul", "detach", "max_pool2d", "relu", "reduce", "result"}),
      ops);
}

// Computing y = gelu(x) costs more than reading it: backward keeps y if it needs it.
struct DearNet : nn::Module {
  nn::Linear first{*this, "first", {192, 2048}}, second{*this, "second", {2048, 5}};
  Tensor forward(const Tensor& x) override { return second(gelu(first(flatten(x)))); }
};

TEST(RecomputeCheap, LeavesExpensiveExpressionsAlone) {
  Job job = norm_job();
  job.model = [] { return std::make_unique<DearNet>(); };
  const Graph g = trace_job(job, 64);
  EXPECT_EQ(build(g, {.recompute_cheap = false}).instructions.size(), build(g, {}).instructions.size());
}

struct DeepNet : nn::Module {
  explicit DeepNet(Tensor (*f)(const Tensor&)) : activation(f) {}
  nn::Linear first{*this, "first", {192, 256}}, second{*this, "second", {256, 256}},
      third{*this, "third", {256, 256}}, head{*this, "head", {256, 5}};
  Tensor (*activation)(const Tensor&);
  Tensor forward(const Tensor& x) override {
    return head(activation(third(activation(second(activation(first(flatten(x))))))));
  }
};

TEST(Activations, OnlyTheOutputIsKeptIfTheDerivativeFollowsFromIt) {
  const auto live_peak = [](Tensor (*activation)(const Tensor&)) {
    Job job = norm_job();
    job.model = [=] { return std::make_unique<DeepNet>(activation); };
    return build(trace_job(job, 512), {}).memory[0].live_peak;
  };
  const std::int64_t expected = live_peak(relu);
  EXPECT_EQ(expected, live_peak(tanh));
  EXPECT_EQ(expected, live_peak(sigmoid));
  EXPECT_LT(expected, live_peak(gelu));
  EXPECT_LT(expected, live_peak(selu)) << "its slope would have few digits where the value is near −1";
}

}  // namespace
}  // namespace tandem::testing
