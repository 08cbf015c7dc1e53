// Layers with the times of their kernels, and the cuts that follow from them.
#include <memory>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/graph/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/plan/build.h>
#include <tandem/plan/layer_profile.h>
#include <tandem/plan/measured_layers.h>
#include <tandem/plan/network_layers.h>

#include "expect_error.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Six products, of which only the last one has kernels with 48 columns.
struct Chain : nn::Module {
  std::vector<std::unique_ptr<nn::Linear>> products;
  Chain() {
    for (const int columns : {64, 64, 64, 64, 64, 48})
      products.push_back(std::make_unique<nn::Linear>(*this, "product" + std::to_string(products.size()),
                                                      nn::LinearOptions{64, columns}));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& product : products) y = relu((*product)(y));
    return y;
  }
};

struct ZeroHost : Host {
  void fill(const HostInput& in) override { in.fill(0); }
  void deliver(const HostResult&) override {}
};

class MeasuredLayers : public ::testing::Test {
 protected:
  MeasuredLayers() {
    net_.initialize(1);
    net_.train(true);
    Trace trace(graph_);
    trace.result("loss", mean(net_(trace.input("x", {DType::f32, {32, 64}}))));
  }

  // A profile by which the last product's kernels take so many milliseconds each, and all others one.
  Profile profile(double last_ms) {
    Profile measured;
    ZeroHost host;
    measured.measure(layers_program(graph_, strategy_), cpu_kernels(), host, net_.state());
    nlohmann::json seconds = nlohmann::json::parse(measured.to_json());
    for (auto& [key, value] : seconds.items())
      if (value.is_number()) value = 1e-3 * (key.find("48") == std::string::npos ? 1 : last_ms);
    return read(seconds.dump());
  }
  Profile read(const std::string& text) const {
    write_file(directory_.file("profile.json"), text);
    return Profile::read(directory_.file("profile.json"));
  }

  const Strategy strategy_{.microbatches = 2, .stages = 2, .schedule = "1f1b"};
  Chain net_;
  Graph graph_;
  TemporaryDirectory directory_;
};

// The first stage takes more: while it begins and ends a batch, the second one waits.
TEST_F(MeasuredLayers, CutsFollowTheKernels) {
  EXPECT_EQ(std::vector<std::string>{"product4"}, balanced_cuts(graph_, strategy_));
  EXPECT_EQ(std::vector<std::string>{"product4"}, measured_cuts(graph_, strategy_, profile(1)));
  EXPECT_EQ(std::vector<std::string>{"product5"}, measured_cuts(graph_, strategy_, profile(100)));
  EXPECT_TRUE(measured_cuts(graph_, {.stages = 1}, Profile()).empty());
}

TEST_F(MeasuredLayers, HaveTheTimesOfAllKernels) {
  const Profile times = profile(3);
  const Program program = with_costs(layers_program(graph_, strategy_), times);
  double kernels = 0, layers = 0;
  for (const Instruction& s : program.instructions) kernels += s.cost.seconds;
  const PartitionProblem problem = measured_partition_problem(graph_, strategy_, times);
  ASSERT_EQ(6u, problem.layers.size());
  for (const PipelineLayer& layer : problem.layers) layers += layer.forward + layer.backward;
  EXPECT_NEAR(kernels, layers, 1e-9 * kernels);
  EXPECT_EQ(problem.layers[1].forward, problem.layers[2].forward);
  EXPECT_GT(problem.layers[5].forward, 2 * problem.layers[4].forward);
  EXPECT_EQ(2 * 32 * 64 * 4, problem.layers[2].forward_bytes) << "of a batch of two micro-batches";

  // They are a profile for `tandem plan pipeline`.
  write_file(directory_.file("layers.json"), layer_profile_json(problem.layers));
  const auto read = read_layer_profile(directory_.file("layers.json"));
  ASSERT_EQ(6u, read.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(problem.layers[i].name, read[i].name);
    EXPECT_NEAR(problem.layers[i].forward, read[i].forward, 1e-12);
    EXPECT_NEAR(problem.layers[i].backward, read[i].backward, 1e-12);
    EXPECT_EQ(problem.layers[i].resident_bytes, read[i].resident_bytes);
    EXPECT_EQ(problem.layers[i].shared_bytes, read[i].shared_bytes);
    EXPECT_EQ(problem.layers[i].weight_bytes, read[i].weight_bytes);
  }
}

TEST_F(MeasuredLayers, NeedEveryKernel) {
  nlohmann::json seconds = nlohmann::json::parse(profile(1).to_json());
  const std::string missing = seconds.begin().key();
  seconds.erase(missing);
  const Profile incomplete = read(seconds.dump());
  expect_error([&] { measured_cuts(graph_, strategy_, incomplete); },
               {"is of another network", "it has no time of", "is measured"});
}

// Whenever some cuts have a plan within the budget, such cuts are found; otherwise those that need least.
TEST_F(MeasuredLayers, CutsStayWithinTheMemoryBudget) {
  const Profile slow_last = profile(100);
  const auto peak = [&](const std::string& cut) {
    Strategy strategy = strategy_;
    strategy.cuts = {cut};
    return planned_peak(build(graph_, strategy));
  };
  const auto cut_within = [&](std::int64_t budget) {
    Strategy strategy = strategy_;
    strategy.memory_budget = budget;
    return measured_cuts(graph_, strategy, slow_last).at(0);
  };
  const std::string fastest = measured_cuts(graph_, strategy_, slow_last).at(0);
  std::set<std::int64_t> peaks;
  for (int cut = 1; cut <= 5; ++cut) peaks.insert(peak(fmt::format("product{}", cut)));
  EXPECT_GT(peaks.size(), 1U);
  for (const std::int64_t budget : peaks) EXPECT_LE(peak(cut_within(budget)), budget);
  EXPECT_EQ(fastest, cut_within(peak(fastest)));
  EXPECT_EQ(*peaks.begin(), peak(cut_within(1)));
}

}  // namespace
}  // namespace tandem::testing
