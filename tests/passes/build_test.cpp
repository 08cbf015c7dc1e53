// Which graphs and strategies build() refuses, and what its passes share.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include <tandem/autograd/training_graph.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/memory/placement.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/plan/build.h>
#include <tandem/plan/network_layers.h>

#include "expect_error.h"
#include "one_weight.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(Build, RefusesALossThatIsNotAScalar) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", mul(model.w, trace.input("x", {DType::f32, {2}})));
  }
  expect_error([&] { build(graph, {}); }, {"'loss' is f32[2]: it must be one scalar per model"});
}

TEST(Build, RefusesInvalidOptimizersAndEmptyGroups) {
  const Job job = small_residual_job();
  const Graph forward = trace_job(job, job.batch_size);
  const auto built = [&](const Strategy& s) { return [&forward, s] { build(forward, s); }; };
  expect_error(built({.optimizer = AdamOptions{.beta2 = 1}}), {"a beta of 1"});
  expect_error(built({.optimizer = SgdOptions{.momentum = -1}}), {"momentum -1"});
  expect_error(built({.parameter_groups = {{{"*.bias"}}, {{"stem.*as", "stem.bias"}}}}),
               {"parameter group 1 (stem.*as, stem.bias) has no parameter of its own"});
  expect_error(built({.parameter_groups = {{{"*.weight", "*.bais"}}}}),
               {"parameter group 0 (*.weight, *.bais): '*.bais' names no trained parameter"});
  expect_error(built({.parameter_groups = {{{"*"}, 1, -5.0}}}), {"a parameter group's weight_decay -5"});
}

struct Layers : nn::Module {
  explicit Layers(const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 1; i < widths.size(); ++i)
      layers.push_back(std::make_unique<nn::Linear>(
          *this, std::to_string(i), nn::LinearOptions{.in = widths[i - 1], .out = widths[i]}));
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (const auto& layer : layers) h = tanh((*layer)(h));  // backward keeps it
    return h;
  }
  std::vector<std::unique_ptr<nn::Linear>> layers;
};

// The work memory of one training step in addition to states. Several layers run on a batch; the loss is
// their mean output.
std::int64_t work_bytes(const std::vector<std::int64_t>& widths, std::int64_t rows) {
  Layers net(widths);
  net.initialize(1);
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", mean(net(trace.input("x", {DType::f32, {rows, widths[0]}}))));
  }
  return build(graph, {}).memory[0].work;
}

// At the end of backward the activations are free, but those that the gradients need would have to stay.
TEST(Build, LargeGradientsComeLastIfThatTakesLessMemory) {
  constexpr std::int64_t kRows = 32, kSlack = 256 << 10;
  const auto bytes = [](std::int64_t rows, std::int64_t columns) { return rows * columns * 4; };
  std::vector<std::int64_t> equal(17, 512);
  EXPECT_LT(work_bytes(equal, kRows), 17 * bytes(kRows, 512) + bytes(512, 512) + kSlack);
  const std::vector<std::int64_t> ends_large{16, 4096, 16, 4096, 16, 4096, 16, 2048, 2048};
  const std::int64_t activations = 3 * bytes(256, 4096) + 2 * bytes(256, 2048);
  EXPECT_LT(work_bytes(ends_large, 256), activations + bytes(2048, 2048) / 2);
}

TEST(Build, RefusesAModelInputNamedLikeTheOptimizers) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", sum(mul(model.w, trace.input("lr", {DType::f32, {}}))));
  }
  expect_error([&] { build(graph, {}); }, {"an input 'lr', which is the optimizer's"});
}

// Shared by all micro-batches, except random draws, which each micro-batch makes itself.
TEST(Build, MicrobatchesShareResultsThatDependOnlyOnWeights) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    const Tensor w = exp(model.w), drawn = dropout(w, 0.5, nn::current_seed());
    trace.result("loss", sum(mul(drawn, trace.input("x", {DType::f32, {2}}))));
  }
  const Graph instruction = training_graph(graph, {.microbatches = 4}).graph;
  const auto forward_nodes = [&](const std::string& label) {
    return std::ranges::count_if(instruction.nodes(), [&](const Node& n) {
      return n.tag.phase == Phase::forward && n.op->label() == label;
    });
  };
  EXPECT_EQ(1, forward_nodes("exp"));
  EXPECT_EQ(4, forward_nodes("dropout"));
  EXPECT_EQ(4, forward_nodes("reduce"));
}

// The embedding's gradient is added to the head's in place: beside the table there is one array of its size.
TEST(Build, ATableThatAlsoPredictsHasOneGradient) {
  constexpr std::int64_t kWords = 5000, kWidth = 64;
  struct Net : nn::Module {
    nn::Embedding words{*this, "words", {.count = kWords, .features = kWidth}};
    Tensor forward(const Tensor& ids) override {
      return matmul(words(ids), words.weight, {.transpose_b = true});
    }
  } net;
  net.initialize(1);
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", mean(net(trace.input("ids", {DType::i32, {4}}))));
  }
  const double table = 4 * kWords * kWidth;
  EXPECT_LT(static_cast<double>(planned_peak(build(graph, {}))), 2.2 * table);
}

// Dropout has no node in an evaluation, so no stage may begin with it.
TEST(Build, EvaluationUsesTheStagesOfTraining) {
  struct Net : nn::Module {
    nn::Linear a{*this, "a", {8, 8}}, b{*this, "b", {8, 8}}, c{*this, "c", {8, 2}};
    nn::Dropout d{*this, "d", 0.5}, e{*this, "e", 0};
    Tensor forward(const Tensor& x) override { return c(e(relu(b(d(relu(a(x))))))); }
  } net;
  net.initialize(1);
  const auto traced = [&](bool training) {
    net.train(training);
    Graph graph;
    Trace trace(graph);
    trace.result("loss", mean(net(trace.input("x", {DType::f32, {4, 8}}))));
    return graph;
  };
  for (int stages : {2, 3}) {
    Strategy s;
    s.stages = stages;
    s.schedule = "gpipe";
    s.cuts = balanced_cuts(traced(true), s);
    EXPECT_EQ(build(traced(true), s).devices, stages);
    EXPECT_EQ(build(traced(false), for_evaluation(s)).devices, stages);
  }
}

}  // namespace
}  // namespace tandem::testing
