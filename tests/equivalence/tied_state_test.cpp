// State that several stages use: who owns it, what crosses, what is refused. lagged_test.cpp compares how
// such a network trains under every schedule with a loop.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/copy.h>
#include <tandem/plan/build.h>
#include <tandem/train/trainer.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "tied_network.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

Job tied_job(DType dtype = DType::f32) {
  Job job = small_residual_job(dtype);
  job.model = [] { return std::make_unique<TiedNetwork>(); };
  return job;
}

Strategy tied_strategy(const std::string& schedule, int stages) {
  Strategy s = plain();
  s.schedule = schedule;
  s.stages = stages;
  if (stages == 2) s.cuts = {"b"};
  if (stages == 4) s.cuts = {"a", "b", "head"};
  return s;
}

// Bytes of the matrix, 8 × 12 in f32.
constexpr std::int64_t kBytes = 8 * 12 * 4;

std::vector<Node> sent(const Graph& g, Phase phase, std::int64_t bytes) {
  std::vector<Node> nodes;
  for (const Node& n : g.nodes())
    if (as<SendOp>(n) && n.tag.phase == phase && g.type(n.inputs[0]).bytes() == bytes) nodes.push_back(n);
  return nodes;
}

TEST(TiedState, TheFirstStageOwnsItAndValueAndGradientCrossOncePerBatch) {
  for (const std::string schedule : {"1f1b", "pipedream", "dualpipe", "spectrain"})
    for (const int microbatches : {1, 4}) {
      SCOPED_TRACE(::testing::Message() << schedule << " microbatches " << microbatches);
      Strategy s = tied_strategy(schedule, 4);
      s.microbatches = microbatches;
      const Graph g = planned_graph(trace_job(tied_job(), 8 / microbatches), s);
      const State& matrix = g.state(g.find_state("stem.weight"));
      EXPECT_EQ(0, matrix.stage);
      EXPECT_EQ(0, g.state(g.find_state("optimizer.momentum.stem.weight")).stage);
      const auto values = sent(g, Phase::forward, kBytes);
      ASSERT_EQ(2u, values.size());  // to the third and to the last stage
      for (const Node& n : values) EXPECT_EQ(0, n.tag.stage);
      // From the last stage to the third, which adds its own, and on to the first.
      const auto gradients = sent(g, Phase::backward, kBytes);
      ASSERT_EQ(2u, gradients.size());
      for (const Node& n : gradients) EXPECT_GE(n.tag.stage, 2);
    }
}

TEST(TiedState, SchedulesThatFlushHaveTheBitsOfOneDevice) {
  for (const int replicas : {1, 2}) {
    const Job job = tied_job();
    Strategy one = plain();
    one.replicas = replicas;
    const Outcome expected = train(job, one);
    for (const std::string schedule : {"plain", "gpipe", "1f1b"})
      for (const int stages : {2, 4}) {
        SCOPED_TRACE(::testing::Message() << schedule << " stages " << stages << " replicas " << replicas);
        Strategy s = tied_strategy(schedule, stages);
        s.replicas = replicas;
        expect_same_training(expected, train(job, s));
      }
  }
}

// With several micro-batches, each stage adds up its own gradients first.
TEST(TiedState, MicroBatchesOfSchedulesThatFlushHaveTheBitsOfTheLoop) {
  const Job job = tied_job();
  for (const std::vector<std::string>& cuts :
       {std::vector<std::string>{"b"}, {"head"}, {"a", "head"}, {"a", "b", "head"}})
    for (const int microbatches : {2, 4}) {
      Strategy s = tied_strategy("plain", static_cast<int>(cuts.size()) + 1);
      s.cuts = cuts;
      s.microbatches = microbatches;
      const Outcome expected = lagged_loop(job, s);
      for (const std::string schedule : {"plain", "gpipe", "1f1b"}) {
        SCOPED_TRACE(::testing::Message() << schedule << " cuts " << cuts.size() << " first " << cuts[0]
                                          << " microbatches " << microbatches);
        s.schedule = schedule;
        expect_same_training(expected, train(job, s));
      }
    }
}

TEST(TiedState, ClipsModelsAndMixedPrecisionEqualOneDevice) {
  Job job = tied_job();
  job.seeds = {1, 2, 3};
  job.rates = {0.05, 0.02, 0.01};
  Strategy one = plain();
  one.models = 3;
  Strategy s = tied_strategy("1f1b", 4);
  s.models = 3;
  expect_same_training(train(job, one), train(job, s));
  one.amp = s.amp = DType::bf16;
  expect_same_training(train(job, one), train(job, s));
  job = tied_job(DType::f64);
  one = plain();
  s = tied_strategy("1f1b", 4);
  one.gradients.clip_norm = s.gradients.clip_norm = 0.2;
  EXPECT_LE(largest_difference(train(job, one), train(job, s)), 1e-13);  // norms add up the stages' parts
}

// The sums of the stages add up to the gradient of the whole batch.
TEST(TiedState, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  const Job job = tied_job(DType::f64);
  const Outcome expected = train(job, plain());
  for (const int stages : {1, 2, 4}) {
    Strategy parts = tied_strategy("1f1b", stages);
    parts.microbatches = 4;
    EXPECT_LE(largest_difference(expected, train(job, parts)), 1e-13) << stages;
  }
}

// In bf16 the gradient of each micro-batch is rounded, and their sum is one of f32.
TEST(TiedState, ItsGradientInMixedPrecisionCrossesOnceAsASumInF32) {
  Strategy s = tied_strategy("1f1b", 4);
  s.microbatches = 4;
  s.amp = DType::bf16;
  const Graph g = planned_graph(trace_job(tied_job(), 2), s);
  EXPECT_EQ(2u, sent(g, Phase::backward, kBytes).size());
  EXPECT_EQ(2u, sent(g, Phase::forward, kBytes / 2).size());
}

// In bf16 the cast of the matrix crosses. Each schedule trains alike with and without barriers.
TEST(TiedState, EveryLaggedScheduleTrainsInMixedPrecisionOnSeveralRanks) {
  for (const std::string schedule :
       {"pipedream", "pipedream-vs", "pipedream-2bw", "dualpipe", "dualpipe-vs", "spectrain"}) {
    SCOPED_TRACE(schedule);
    Strategy s = tied_strategy(schedule, 2);
    s.amp = DType::bf16;
    s.replicas = 2;
    s.microbatches = 2;
    const Outcome free = train(tied_job(), s);
    s.lockstep = true;
    expect_same_training(free, train(tied_job(), s));
  }
}

// The stem uses a detached matrix, so only the head makes a gradient of it.
struct Detached final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = 8}}, a{*this, "a", {.in = 8, .out = 8}};
  TiedHead head{*this, "head"};
  Tensor forward(const Tensor& x) override {
    const Tensor w = stem.named_parameters()[0].second->tensor,
                 bias = stem.named_parameters()[1].second->tensor;
    return head(relu(a(tandem::linear(flatten(x), detach(w)) + bias)), w);
  }
};

TEST(TiedState, ItsGradientCanComeFromALaterStageAlone) {
  Job job = tied_job();
  job.model = [] { return std::make_unique<Detached>(); };
  for (const int replicas : {1, 2}) {
    Strategy one = plain();
    one.replicas = replicas;
    Strategy s = tied_strategy("1f1b", 2);
    s.cuts = {"head"};
    s.replicas = replicas;
    if (replicas == 2) one.fusion_groups = s.fusion_groups = {{{"stem.weight", "a.weight"}}};
    expect_same_training(train(job, one), train(job, s));
  }
}

TEST(TiedState, AFrozenMatrixCanBeUsedOnSeveralStages) {
  Job job = tied_job();
  job.model = [] {
    auto model = std::make_unique<TiedNetwork>();
    model->stem.requires_grad(false);
    return model;
  };
  const Outcome expected = train(job, plain());
  expect_same_training(expected, train(job, tied_strategy("1f1b", 4)));
  EXPECT_EQ(expected.state.at("stem.weight").values(), initial_state(job).at("stem.weight").values());
  train(job, tied_strategy("dualpipe", 4));
}

struct SharedNorm final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = 8}};
  nn::BatchNorm norm{*this, "norm", {.channels = 8}};
  nn::Linear head{*this, "head", {.in = 8, .out = 8}};
  Tensor forward(const Tensor& x) override { return norm(head(norm(stem(flatten(x))))); }
};

TEST(TiedState, StateThatForwardAssignsIsRefused) {
  Job job = tied_job();
  job.model = [] { return std::make_unique<SharedNorm>(); };
  Strategy s = tied_strategy("1f1b", 2);
  s.cuts = {"head"};
  expect_error([&] { program_of(job, s); },
               {"impossible cut", "norm.running_", "which forward assigns", "stages 0 and 1"});
}

struct TiedClassifier final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 4, .out = 8}}, a{*this, "a", {.in = 8, .out = 8}},
      b{*this, "b", {.in = 8, .out = 8}};
  nn::Linear head{*this, "head", {.in = 4, .out = 3}};
  Tensor forward(const Tensor& x) override {
    const Tensor y = relu(b(relu(a(relu(stem(x))))));
    return head(matmul(y, stem.named_parameters()[0].second->tensor));
  }
};

// One checkpoint, of four stages, two, or one, continues on any other number of stages.
TEST(TiedState, CheckpointsAndEvaluationDoNotDependOnTheStages) {
  const auto data = std::make_shared<ClassDataset>(96, 1), test = std::make_shared<ClassDataset>(40, 2);
  struct Ended {
    std::vector<double> accuracy;
    CheckpointResult checkpoint;
  };
  const auto run = [&](int stages, std::int64_t batches, const CheckpointResult* from) {
    TiedClassifier model;
    model.initialize(5);
    TrainerOptions options{
        .strategy = plain(), .batch_size = 8, .batches = batches, .lr = {0.05}, .test = test};
    options.epochs = 0;
    options.checkpoint_every = batches;
    options.strategy.schedule = stages == 1 ? "plain" : "1f1b";
    options.strategy.stages = stages;
    if (stages == 2) options.strategy.cuts = {"b"};
    if (stages == 4) options.strategy.cuts = {"a", "b", "head"};
    Trainer trainer(model, data, std::move(options));
    Ended ended;
    trainer.add({.checkpoint = [&](CheckpointResult c) {
      ended.checkpoint.progress = c.progress;
      for (const auto& [path, t] : c.state)
        ended.checkpoint.state[path] = Tensor::from(t.values(), t.shape());
    }});
    if (from) trainer.load(from->state, from->progress);
    ended.accuracy = trainer.fit().accuracy;
    return ended;
  };
  const Ended whole = run(1, 90, nullptr), first = run(4, 40, nullptr);
  EXPECT_EQ(1, std::ranges::count_if(first.checkpoint.state,
                                     [](const auto& s) { return s.first == "stem.weight"; }));
  EXPECT_GT(whole.accuracy.at(0), 0.5);
  for (const int stages : {1, 2, 4}) {
    SCOPED_TRACE(stages);
    const Ended rest = run(stages, 90, &first.checkpoint);
    EXPECT_EQ(whole.accuracy, rest.accuracy);
    expect_same_state(whole.checkpoint.state, rest.checkpoint.state);
  }
}

}  // namespace
}  // namespace tandem::testing
