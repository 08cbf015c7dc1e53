// Models of an array, each with settings of its own, learn what each learns alone.
#include <numeric>

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
  trainer.add({.batch = [&](const BatchResult& b) { learned.losses.push_back(b.loss); }});
  trainer.fit();
  for (const Given& g : given) learned.states.push_back(g.net->state());
  return learned;
}

void expect_each_as_alone(int models, bool adam, bool own_data, const TrainerOptions& options,
                          const TrainerOptions& alone) {
  const auto all = [&] {
    std::vector<Given> given;
    for (int m = 0; m < models; ++m) given.push_back(make(m, adam, own_data));
    return given;
  };
  const auto copy = [](const TrainerOptions& o) {
    TrainerOptions c;
    c.strategy = o.strategy;
    return c;
  };
  std::vector<Given> array = all();
  const Learned together = train(array, copy(options));
  for (int m = 0; m < models; ++m) {
    SCOPED_TRACE(::testing::Message() << "model " << m << " of " << models << (adam ? ", adam" : ", sgd")
                                      << (own_data ? ", own data" : ""));
    std::vector<Given> one;
    one.push_back(make(m, adam, own_data));
    const Learned single = train(one, copy(alone));
    expect_same_state(single.states[0], together.states[static_cast<std::size_t>(m)]);
    ASSERT_EQ(single.losses.size(), together.losses.size());
    for (std::size_t b = 0; b < single.losses.size(); ++b)
      EXPECT_EQ(single.losses[b][0], together.losses[b][static_cast<std::size_t>(m)]) << "batch " << b;
  }
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
  refused([](auto& g) { g[1].model.options.optimizer = AdamOptions{}; }, {"model 1 has another optimizer"});
  refused([](auto& g) { g[1].model.module = g[0].model.module; }, {"one module is given twice"});
  refused([](auto& g) { g[1].model.module = nullptr; }, {"a module for each"});
  refused([](auto& g) { g[1].model.data = std::make_shared<ClassDataset>(21, 0); }, {"own data differ"});
  refused([](auto& g) { g.clear(); }, {"at least one model"});
}

}  // namespace
}  // namespace tandem::testing
