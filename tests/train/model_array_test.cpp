// Models of an array, each with settings of its own, learn what each learns alone.
#include <cmath>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/datasets/loader.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/ops/varied.h>
#include <tandem/train/train_step.h>
#include <tandem/train/trainer.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct Net : nn::Module {
  explicit Net(double dropout, std::int64_t width = 16)
      : first{*this, "first", {.in = 4, .out = width}},
        norm{*this, "norm", {.channels = width}},
        drop{*this, "drop", dropout},
        second{*this, "second", {.in = width, .out = 12}} {}
  nn::Linear first;
  nn::BatchNorm norm;
  nn::Dropout drop;
  nn::Linear second, head{*this, "head", {.in = 12, .out = 3}};
  Tensor forward(const Tensor& x) override { return head(relu(second(drop(relu(norm(first(x))))))); }
};

struct Given {
  std::unique_ptr<Net> net;
  ArrayModel model;
};

DatasetPtr samples(std::uint64_t order) {
  return std::make_shared<ShuffledDataset>(std::make_shared<ClassDataset>(22, run_seed()), order);
}

// Model `m`, which differs from the others in everything that can differ.
Given make(int m, bool adam, bool own_data) {
  Given g{std::make_unique<Net>(0.1 + 0.05 * m), {}};
  g.net->initialize(run_seed() + static_cast<std::uint64_t>(m));
  ArrayModel& a = g.model;
  a.module = g.net.get();
  if (adam)
    a.options.optimizer = AdamOptions{.beta1 = 0.9 - 0.05 * m,
                                      .beta2 = 0.99 + 0.001 * m,
                                      .weight_decay = 0.01 * m,
                                      .decoupled = m % 2 == 0};
  else
    a.options.optimizer =
        SgdOptions{.momentum = m == 1 ? 0 : 0.8 + 0.02 * m, .weight_decay = 1e-3 * m, .nesterov = m == 2};
  if (m % 3 == 1) a.options.clip_norm = 0.05 * (m + 1);
  if (m % 3 == 2) a.options.clip_value = 0.01 * m;
  a.objective = classification(0.02 * m);
  a.lr = 0.05 / (m + 1);
  if (m % 2 == 1) a.lr_schedule = [](const RunLength& run) { return cosine_lr(run.total); };
  a.seed = 40 + static_cast<std::uint64_t>(m * m);
  if (own_data) a.data = samples(7 + static_cast<std::uint64_t>(m));
  return g;
}

struct Learned {
  std::vector<StateDict> states;
  std::vector<std::vector<double>> losses;  // by batch
};

Learned train(std::vector<Given>& given, TrainerOptions options) {
  ModelArray array;
  for (const Given& g : given) array.push_back(g.model);
  options.batch_size = 8;
  options.epochs = 3;
  Trainer trainer(array, samples(5), std::move(options));
  Learned learned;
  trainer.add({.batch = [&](const BatchResult& b) {
    auto& losses = learned.losses;
    if (std::ssize(losses) <= b.batch) losses.resize(static_cast<std::size_t>(b.batch + 1), b.loss);
    for (const int m : b.models)
      losses[static_cast<std::size_t>(b.batch)][static_cast<std::size_t>(m)] =
          b.loss[static_cast<std::size_t>(m)];
  }});
  trainer.fit();
  for (const Given& g : given) learned.states.push_back(g.net->state());
  return learned;
}

// `adam`: which models have Adam, and not SGD.
void expect_each_as_alone(const std::vector<bool>& adam, bool own_data, const TrainerOptions& options,
                          const TrainerOptions& alone) {
  const auto copy = [](const TrainerOptions& o) {
    TrainerOptions c;
    c.strategy = o.strategy;
    c.turns = o.turns;
    return c;
  };
  const auto model = [&](std::size_t m) { return make(static_cast<int>(m), adam[m], own_data); };
  std::vector<Given> array;
  for (std::size_t m = 0; m < adam.size(); ++m) array.push_back(model(m));
  const Learned together = train(array, copy(options));
  for (std::size_t m = 0; m < adam.size(); ++m) {
    SCOPED_TRACE(::testing::Message() << "model " << m << " of " << adam.size()
                                      << (adam[m] ? ", adam" : ", sgd") << (own_data ? ", own data" : ""));
    std::vector<Given> one;
    one.push_back(model(m));
    const Learned single = train(one, copy(alone));
    expect_same_state(single.states[0], together.states[m]);
    ASSERT_EQ(single.losses.size(), together.losses.size());
    for (std::size_t b = 0; b < single.losses.size(); ++b)
      EXPECT_EQ(single.losses[b][0], together.losses[b][m]) << "batch " << b;
  }
}

void expect_each_as_alone(int models, bool adam, bool own_data, const TrainerOptions& options,
                          const TrainerOptions& alone) {
  expect_each_as_alone(std::vector<bool>(static_cast<std::size_t>(models), adam), own_data, options, alone);
}

TEST(ModelArrays, EachModelLearnsWhatItLearnsAlone) {
  for (const int models : {2, 3, 5, 8})
    for (const bool adam : {false, true})
      for (const bool own_data : {false, true}) expect_each_as_alone(models, adam, own_data, {}, {});
}

TEST(ModelArrays, AnyPartitionGivesTheSameBits) {
  for (const bool adam : {false, true})
    for (const std::vector<int>& partition : std::vector<std::vector<int>>{{1, 1}, {2, 1}, {2, 2, 1}}) {
      TrainerOptions o;
      o.strategy.arrays = partition;
      expect_each_as_alone(std::accumulate(partition.begin(), partition.end(), 0), adam, true, o, {});
    }
}

TEST(ModelArrays, TurnsByEpochGiveTheSameBits) {
  for (const bool own_data : {false, true})
    for (const std::vector<int>& turns : std::vector<std::vector<int>>{{2, 1}, {1, 1, 1}, {2, 3}}) {
      TrainerOptions o;
      o.turns = turns;
      expect_each_as_alone(std::accumulate(turns.begin(), turns.end(), 0), own_data, own_data, o, {});
    }
  TrainerOptions pairs;
  pairs.turns = {2, 2};
  pairs.strategy.arrays = {1, 1, 1, 1};
  pairs.strategy.array_order = ArrayOrder::ring;
  expect_each_as_alone(4, false, false, pairs, {});
}

TEST(ModelArrays, OptimizersOfTwoKindsHaveArraysOfTheirOwn) {
  TrainerOptions two, three, ring, turns;
  two.strategy.arrays = {1, 1};
  expect_each_as_alone({false, true}, false, two, {});
  three.strategy.arrays = {2, 1};
  expect_each_as_alone({true, true, false}, true, three, {});
  ring.strategy.arrays = {1, 2, 1};
  ring.strategy.array_order = ArrayOrder::ring;
  expect_each_as_alone({false, true, true, false}, false, ring, {});
  turns.strategy.arrays = {1, 1, 1};
  turns.turns = {1, 2};
  expect_each_as_alone({true, false, true}, false, turns, {});
}

// Three models in an array, all at once or in turns, with everything that a run reports.
struct ReportedRun {
  std::vector<Given> given;
  std::unique_ptr<Trainer> trainer;
  std::vector<CheckpointResult> checkpoints;
  std::vector<EpochResult> epochs;
  std::vector<StoppedModel> stopped;

  explicit ReportedRun(const std::vector<int>& turns, double rate_of_second = 0, int checkpoint_every = 2) {
    ModelArray array;
    for (int m = 0; m < 3; ++m) {
      given.push_back(make(m, false, false));
      if (m == 1) given.back().model.options.optimizer = SgdOptions{.momentum = 0.85};
      if (m == 1 && rate_of_second > 0) given.back().model.lr = rate_of_second;
      array.push_back(given.back().model);
    }
    TrainerOptions o{.batch_size = 8, .epochs = 3, .test = samples(9), .checkpoint_every = checkpoint_every};
    o.turns = turns;
    o.on_non_finite = OnNonFinite::mask;
    trainer = std::make_unique<Trainer>(array, samples(5), std::move(o));
    trainer->add({.end_epoch = [this](const EpochResult& e) { epochs.push_back(e); },
                  .checkpoint = [this](const CheckpointResult& c) { checkpoints.push_back(c); },
                  .stopped = [this](const StoppedModel& s) { stopped.push_back(s); }});
  }
};

void expect_same_run(const ReportedRun& expected, const ReportedRun& run) {
  for (std::size_t m = 0; m < 3; ++m)
    expect_same_state(expected.given[m].net->state(), run.given[m].net->state());
  ASSERT_FALSE(run.epochs.empty());
  const EpochResult &e = expected.epochs.back(), &r = run.epochs.back();
  ASSERT_EQ(e.accuracy.size(), r.accuracy.size());
  for (std::size_t m = 0; m < e.accuracy.size(); ++m) {
    if (std::isnan(e.accuracy[m])) continue;
    EXPECT_EQ(e.accuracy[m], r.accuracy[m]) << "model " << m;
    EXPECT_EQ(e.loss[m], r.loss[m]) << "model " << m;
  }
}

TEST(ModelArrays, ACheckpointIsOfAllTurns) {
  ReportedRun at_once({}), turns({2, 1});
  at_once.trainer->fit();
  turns.trainer->fit();
  expect_same_run(at_once, turns);
  ASSERT_EQ(at_once.checkpoints.size(), turns.checkpoints.size());
  for (std::size_t c = 0; c < turns.checkpoints.size(); ++c) {
    EXPECT_EQ(at_once.checkpoints[c].progress.batch, turns.checkpoints[c].progress.batch);
    expect_same_state(at_once.checkpoints[c].state, turns.checkpoints[c].state);
  }
  // The second lies within an epoch. It continues in other turns.
  for (const std::vector<int>& other : std::vector<std::vector<int>>{{}, {1, 2}, {1, 1, 1}}) {
    ReportedRun resumed(other);
    resumed.trainer->load(turns.checkpoints[1].state, turns.checkpoints[1].progress);
    resumed.trainer->fit();
    expect_same_run(at_once, resumed);
  }
}

TEST(ModelArrays, ARunThatEndsWithinATurnGoesBackToWhereAllModelsWere) {
  constexpr int kNever = 1000;
  ReportedRun whole({}, 0, kNever);
  whole.trainer->fit();
  for (const int turn : {0, 1, 2})
    for (const std::int64_t batch : {3, 4, 5}) {  // of the second epoch
      SCOPED_TRACE(::testing::Message() << "turn " << turn << ", batch " << batch);
      ReportedRun ended({1, 1, 1}, 0, kNever);
      bool has_ended = false;
      ended.trainer->add({.batch = [&](const BatchResult& b) {
        if (b.batch == batch && b.models[0] == turn && !std::exchange(has_ended, true))
          ended.trainer->end_soon("enough");
      }});
      EXPECT_THROW(ended.trainer->fit(), Aborted);
      EXPECT_TRUE(ended.trainer->has_ended_early());
      ASSERT_EQ(ended.checkpoints.size(), 1u);
      const CheckpointResult& last = ended.checkpoints.back();
      const bool all_have_trained = turn == 2 && batch == 5;
      // More batches can have begun than the one whose result has come.
      if (turn < 2 || last.progress.batch != 6) {
        EXPECT_EQ(last.progress.batch, all_have_trained ? 6 : 3);
      }
      ReportedRun resumed({2, 1}, 0, kNever);
      resumed.trainer->load(last.state, last.progress);
      resumed.trainer->fit();
      expect_same_run(whole, resumed);
      ended.trainer->fit();  // goes on in the same object
      expect_same_run(whole, ended);
    }
}

// What the module of a model that waits is given counts.
TEST(ModelArrays, AModelThatWaitsCanBeChanged) {
  const auto halve_first = [](ReportedRun& run) {
    run.trainer->add({.end_epoch = [&](const EpochResult& e) {
      Tensor& weight = run.given[0].net->head.weight;
      if (e.epoch == 0) assign(weight, weight * 0.5);
    }});
    run.trainer->fit();
  };
  ReportedRun at_once({}), turns({1, 2});
  halve_first(at_once);
  halve_first(turns);
  expect_same_run(at_once, turns);
}

TEST(ModelArrays, AModelThatDivergesLeavesItsTurn) {
  constexpr double kHuge = 1e30;
  ReportedRun at_once({}, kHuge);
  at_once.trainer->fit();
  ASSERT_EQ(at_once.stopped.size(), 1u);
  for (const std::vector<int>& each : std::vector<std::vector<int>>{{2, 1}, {1, 1, 1}, {1, 2}}) {
    ReportedRun turns(each, kHuge);
    turns.trainer->fit();
    ASSERT_EQ(turns.stopped.size(), 1u);
    EXPECT_EQ(turns.stopped[0].model, 1);
    EXPECT_EQ(turns.stopped[0].batch, at_once.stopped[0].batch);
    for (const std::size_t m : {0, 2})
      expect_same_state(at_once.given[m].net->state(), turns.given[m].net->state());
    const auto accuracy = turns.trainer->evaluate();
    EXPECT_EQ(accuracy[0], at_once.trainer->evaluate()[0]);
    EXPECT_EQ(accuracy[2], at_once.trainer->evaluate()[2]);
  }
}

TEST(ModelArrays, TurnsThatDoNotFitAreRefused) {
  const auto refused = [](const auto& change, const std::vector<std::string>& words) {
    std::vector<Given> given;
    for (int m = 0; m < 3; ++m) given.push_back(make(m, false, false));
    TrainerOptions o;
    o.turns = {2, 1};
    change(o);
    expect_error([&] { train(given, std::move(o)); }, words);
  };
  refused([](auto& o) { o.turns = {2, 2}; }, {"turns of 2, 2 models", "there are 3"});
  refused([](auto& o) { o.turns = {3, 0}; }, {"turns of 3, 0 models"});
  refused([](auto& o) { o.strategy.arrays = {1, 2}; }, {"arrays of 1, 2", "each array must lie in one turn"});
  refused([](auto& o) { o.strategy.replicas = 2; }, {"turns of 2, 1 models need one rank"});
  refused([](auto& o) { o.on_non_finite = OnNonFinite::skip; }, {"no turn can go back without the others"});
}

TEST(ModelArrays, TrainInStagesAndOnRanks) {
  TrainerOptions stages;
  stages.strategy.stages = 2;
  stages.strategy.schedule = "gpipe";
  TrainerOptions ranks;
  ranks.strategy.replicas = 2;
  for (const bool adam : {false, true}) {
    expect_each_as_alone(3, adam, true, stages, stages);
    expect_each_as_alone(3, adam, false, ranks, ranks);
  }
}

TEST(ModelArrays, TrainInATrainStep) {
  const auto steps = [](const std::vector<int>& numbers) {
    std::vector<Given> given;
    ModelArray array;
    std::vector<double> rates;
    for (const int m : numbers) {
      given.push_back(make(m, false, false));
      array.push_back(given.back().model);
      rates.push_back(0.05 / (m + 1));
    }
    TrainStep step(array, [](nn::Module& net, const Tensors& b) { return cross_entropy(net(b[0]), b[1]); });
    const DatasetPtr data = samples(5);
    Loader loader(data, {.batch_size = 8});
    std::vector<Tensors> batches;
    for (std::int64_t b = 0; b < 2; ++b) {
      Tensor x = Tensor::empty({DType::f32, {8, 4}}), y = Tensor::empty({DType::i32, {8}});
      loader.data(b, {0, 8}, x.bytes());
      loader.labels(b, {0, 8}, {y.as<std::int32_t>(), 8});
      batches.push_back({x, y});
    }
    step.run(batches, rates);
    std::vector<StateDict> states;
    for (const Given& g : given) states.push_back(g.net->state());
    return states;
  };
  const auto together = steps({0, 1, 2});
  for (int m = 0; m < 3; ++m) expect_same_state(steps({m})[0], together[static_cast<std::size_t>(m)]);
}

// The median rule by hand: the means are 0.5, 0.4, 0.2; of each, the median of the others is 0.3, 0.35, 0.45.
TEST(ModelArrays, MedianRule) {
  const auto model = [](double sum, double best) { return TrainProgress::Accuracies{sum, best, 2}; };
  const std::vector<TrainProgress::Accuracies> models{model(1, 0.6), model(0.8, 0.45), model(0.4, 0.44)};
  EXPECT_EQ((std::vector<int>{2}), below_median(models, {0, 1, 2}));
  EXPECT_EQ((std::vector<int>{}), below_median(models, {2})) << "the last model goes on";
  EXPECT_EQ((std::vector<int>{}), below_median({model(1, 0.6), {}}, {0, 1})) << "nothing to compare with";
}

TEST(ModelArrays, NamesTheFirstModuleThatDiffers) {
  Given a = make(0, false, false), b = make(1, false, false);
  b.net = std::make_unique<Net>(0.1, 20);
  b.net->initialize(1);
  b.model.module = b.net.get();
  std::vector<Given> given;
  given.push_back(std::move(a));
  given.push_back(std::move(b));
  expect_error([&] { train(given, {}); },
               {"must have the same structure", "model 1 differs from model 0", "first.weight", "[20, 4]"});
}

TEST(ModelArrays, AreRefusedIfTheyCannotTrainSideBySide) {
  const auto refused = [](const auto& change, const std::vector<std::string>& words) {
    std::vector<Given> given;
    for (int m = 0; m < 2; ++m) given.push_back(make(m, false, false));
    change(given);
    expect_error([&] { train(given, {}); }, words);
  };
  refused([](auto& g) { g[1].model.options.optimizer = AdamOptions{}; },
          {"model 1 has another optimizer than model 0", "arrays of their own"});
  refused([](auto& g) { g[1].model.module = g[0].model.module; }, {"one module is given twice"});
  refused([](auto& g) { g[1].model.module = nullptr; }, {"a module for each"});
  refused([](auto& g) { g[1].model.data = std::make_shared<ClassDataset>(21, 0); }, {"own data differ"});
  refused([](auto& g) { g.clear(); }, {"at least one model"});
}

}  // namespace
}  // namespace tandem::testing
