// What a Program is made of: which graphs and strategies are refused, and what the passes share.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/core/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/build.h>
#include <tandem/plan/training_graph.h>

#include "expect_error.h"
#include "one_weight.h"
#include "training_run.h"

namespace tandem {
namespace {

using test::expect_error;
using test::OneWeight;
using testing::Job;
using testing::small_residual_job;
using testing::trace_job;

TEST(Build, RefusesALossThatIsNoScalar) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", mul(model.w, trace.input("x", {DType::f32, {2}})));
  }
  expect_error([&] { build(graph, {}); }, {"'loss' is f32[2]: it must be a scalar"});
}

TEST(Build, RefusesSenselessOptimisersAndGroupsOfNothing) {
  const Job job = small_residual_job();
  const Graph forward = trace_job(job, job.batch_size);
  const auto built = [&](const Strategy& s) { return [&forward, s] { build(forward, s); }; };
  expect_error(built({.optimizer = AdamOptions{.beta2 = 1}}), {"a beta of 1"});
  expect_error(built({.optimizer = SgdOptions{.momentum = -1}}), {"momentum -1"});
  expect_error(built({.parameter_groups = {{{"*.bias"}}, {{"stem.*as", "stem.bias"}}}}),
               {"parameter group 1 (stem.*as, stem.bias) has no parameter of its own"});
  expect_error(built({.parameter_groups = {{{"*.weight", "*.bais"}}}}),
               {"parameter group 0 (*.weight, *.bais): '*.bais' names no trained parameter"});
}

TEST(Build, RefusesAModelThatTakesTheOptimisersInput) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", sum(mul(model.w, trace.input("lr", {DType::f32, {}}))));
  }
  expect_error([&] { build(graph, {}); }, {"an input 'lr', which is the optimiser's"});
}

// Once for all, but for what is drawn: that is each micro-batch's own.
TEST(Build, MicrobatchesShareWhatIsComputedOfWeightsAlone) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    const Tensor w = exp(model.w), drawn = dropout(w, 0.5, nn::current_seed());
    trace.result("loss", sum(mul(drawn, trace.input("x", {DType::f32, {2}}))));
  }
  const Graph step = training_graph(graph, {.microbatches = 4}).graph;
  const auto forward_nodes = [&](const std::string& label) {
    return std::ranges::count_if(
        step.nodes(), [&](const Node& n) { return n.tag.phase == Phase::forward && n.op->label() == label; });
  };
  EXPECT_EQ(1, forward_nodes("exp"));
  EXPECT_EQ(4, forward_nodes("dropout"));
  EXPECT_EQ(4, forward_nodes("reduce"));
}

// Dropout has no node in an evaluation, so no stage may begin with it.
TEST(Build, EvaluationFindsTheStagesOfTraining) {
  struct Net : nn::Module {
    nn::Linear a{*this, "a", {8, 8}}, b{*this, "b", {8, 8}}, c{*this, "c", {8, 2}};
    nn::Dropout d{*this, "d", 0.5}, e{*this, "e", 0};
    Tensor forward(const Tensor& x) override { return c(e(relu(b(d(relu(a(x))))))); }
  } net;
  net.initialise(1);
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
    s.schedule = ScheduleKind::gpipe;
    s.cuts = balanced_cuts(traced(true), stages);
    EXPECT_EQ(build(traced(true), s).devices, stages);
    EXPECT_EQ(build(traced(false), for_evaluation(s)).devices, stages);
  }
}

}  // namespace
}  // namespace tandem
