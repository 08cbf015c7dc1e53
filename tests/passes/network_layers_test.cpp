// Where networks can be cut, what their parts take, and which cuts follow.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/core/graph/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/network_layers.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

// A block with inner modules and a skip that passes both.
struct Block : nn::Module {
  nn::Linear first{*this, "first", {64, 64}}, second{*this, "second", {64, 64}};
  using nn::Module::Module;
  Tensor forward(const Tensor& x) override { return x + second(relu(first(x))); }
};

struct Net : nn::Module {
  nn::Linear stem{*this, "stem", {64, 64}};
  Block block{*this, "block"};
  nn::Linear head{*this, "head", {64, 64}};
  Tensor forward(const Tensor& x) override { return head(block(stem(x))); }
};

Graph traced(nn::Module& net) {
  net.initialize(1);
  net.train(true);
  Graph graph;
  Trace trace(graph);
  trace.result("loss", mean(net(trace.input("x", {DType::f32, {32, 64}}))));
  return graph;
}

TEST(NetworkLayers, BeginWithModulesAtAnyDepth) {
  Net net;
  const Graph g = traced(net);
  EXPECT_EQ((std::vector<std::string>{"block", "block.second", "head"}), possible_cuts(g, 4));
  expect_error([&] { possible_cuts(g, 5); }, {"5 stages need 4 cuts", "block.second, head"});
}

TEST(NetworkLayers, CountValuesThatSkipLayersAtEachCut) {
  Net net;
  const Graph g = traced(net);
  const PartitionProblem p =
      partition_problem(g, possible_cuts(g, 4), {.microbatches = 2, .stages = 4, .schedule = "1f1b"});
  ASSERT_EQ(4u, p.layers.size());
  const double value = 2 * 32 * 64 * 4;  // bytes of a batch
  EXPECT_EQ(value, p.layers[0].forward_bytes);
  EXPECT_EQ(2 * value, p.layers[1].forward_bytes) << "the block's input too";
  EXPECT_EQ(value, p.layers[2].forward_bytes);
  EXPECT_EQ(0, p.layers[3].forward_bytes);
  for (const PipelineLayer& layer : p.layers) {
    EXPECT_EQ((64 * 64 + 64) * 4, layer.weight_bytes);
    EXPECT_GT(layer.resident_bytes + layer.shared_bytes, 0);
  }
  // The gradient of a product takes two, and the stem's input needs none.
  EXPECT_NEAR(2, p.layers[1].backward / p.layers[1].forward, 0.6);
  EXPECT_LT(p.layers[0].backward, 0.8 * p.layers[1].backward);
}

// Between middle and head, the stem's matrix is used again: its value and its gradient cross the first cut,
// once per batch.
struct Tied : nn::Module {
  nn::Linear stem{*this, "stem", {64, 64}}, middle{*this, "middle", {64, 64}}, head{*this, "head", {64, 64}};
  Tensor forward(const Tensor& x) override {
    return head(matmul(middle(stem(x)), stem.named_parameters()[0].second->tensor));
  }
};

TEST(NetworkLayers, WhatStagesShareCrossesOncePerBatch) {
  Tied tied;
  const Graph g = traced(tied);
  const PartitionProblem p =
      partition_problem(g, {"middle", "head"}, {.microbatches = 4, .stages = 3, .schedule = "1f1b"});
  const double value = 4 * 32 * 64 * 4, matrix = 64 * 64 * 4;
  EXPECT_EQ(value + matrix, p.layers[0].forward_bytes);
  EXPECT_EQ(value + matrix, p.layers[0].backward_bytes);
  EXPECT_EQ(value, p.layers[1].forward_bytes);
  EXPECT_EQ(value, p.layers[1].backward_bytes);
}

TEST(NetworkLayers, BalancedCutsFollowTheSchedule) {
  Net net;
  const Graph g = traced(net);
  const auto cuts = [&](const std::string& schedule) {
    return balanced_cuts(g, {.microbatches = 4, .stages = 2, .schedule = schedule});
  };

  EXPECT_EQ(std::vector<std::string>{"block.second"}, cuts("1f1b"));
  EXPECT_TRUE(balanced_cuts(g, {.stages = 1}).empty());
}

}  // namespace
}  // namespace tandem::testing
