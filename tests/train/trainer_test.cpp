// The loop over epochs and batches.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/datasets/loader.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
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
  nn::Linear first{*this, "first", {.in = 4, .out = 16}}, second{*this, "second", {.in = 16, .out = 16}};
  nn::Linear head{*this, "head", {.in = 16, .out = 3}};
  Tensor forward(const Tensor& x) override { return head(relu(second(relu(first(x))))); }
};

class Trainers : public ::testing::Test {
 protected:
  Trainers() {
    nn::set_default_dtype(DType::f32);
    net.initialize(run_seed());
  }
  /// 22 samples in batches of 8: an epoch has two full batches and one of 6.
  DatasetPtr samples(std::int64_t count = 22) const {
    return std::make_shared<ShuffledDataset>(std::make_shared<ClassDataset>(count, run_seed()), 5);
  }
  static TrainerOptions options() {
    TrainerOptions o;
    o.batch_size = 8;
    o.epochs = 3;
    o.lr = {0.05};
    o.strategy.optimizer = SgdOptions{.momentum = 0.9};
    return o;
  }
  struct Told {
    std::vector<std::string> calls;
    std::vector<BatchResult> batches;
    std::vector<EpochResult> epochs;
    std::vector<CheckpointResult> checkpoints;
  };
  static Callbacks remember(Told& told) {
    return {.begin = [&] { told.calls.emplace_back("begin"); },
            .begin_epoch = [&](std::int64_t e) { told.calls.push_back("epoch " + std::to_string(e)); },
            .batch = [&](const BatchResult& b) { told.batches.push_back(b); },
            .end_epoch =
                [&](const EpochResult& e) {
                  told.calls.push_back("end of epoch " + std::to_string(e.epoch));
                  told.epochs.push_back(e);
                },
            .checkpoint =
                [&](CheckpointResult c) {
                  told.calls.push_back("checkpoint " + std::to_string(c.progress.batch));
                  told.checkpoints.push_back(std::move(c));
                },
            .end = [&](const EpochResult&) { told.calls.emplace_back("end"); }};
  }
  Net net;
};

TEST_F(Trainers, EqualHandWrittenStepsWithShortLastBatches) {
  const auto data = samples();
  Told told;
  Trainer trainer(net, data, options());
  trainer.add(remember(told));
  trainer.fit();
  Net other;
  other.initialize(run_seed());
  TrainStep step([&](const Tensors& b) { return cross_entropy(other(b[0]), b[1]); }, other.state(),
                 {.strategy = options().strategy});
  Loader loader(data, {.batch_size = 8, .drop_last = false});
  ASSERT_EQ(9u, told.batches.size());
  for (std::int64_t b = 0; b < 9; ++b) {
    const std::int64_t n = b % 3 == 2 ? 6 : 8;
    Tensor x = Tensor::empty({DType::f32, {n, 4}}), y = Tensor::empty({DType::i32, {n}});
    loader.data(b, {0, n}, x.bytes());
    loader.labels(b, {0, n}, {y.as<std::int32_t>(), static_cast<std::size_t>(n)});
    const BatchResult& r = told.batches[static_cast<std::size_t>(b)];
    EXPECT_EQ(step({x, y}, 0.05), r.loss.at(0)) << b;
    EXPECT_EQ(b, r.batch);
    EXPECT_EQ(b / 3, r.epoch);
    EXPECT_EQ(n, r.samples);
    EXPECT_EQ(0.05, r.lr.at(0));
  }
  other.load(step.state());
  expect_same_state(other.state(), net.state());
}

TEST_F(Trainers, CallBackInOrder) {
  Told told;
  TrainerOptions o = options();
  o.epochs = 2;
  o.checkpoint_every = 2;
  o.test = samples(13);
  Trainer trainer(net, samples(), std::move(o));
  trainer.add(remember(told));
  trainer.fit();
  EXPECT_EQ((std::vector<std::string>{"begin", "epoch 0", "checkpoint 2", "end of epoch 0", "epoch 1",
                                      "checkpoint 4", "end of epoch 1", "checkpoint 6", "end"}),
            told.calls);
}

// (1 − s) of the labels' and s of the uniform distribution, as with one label per sample.
TEST(Objectives, SmoothSoftLabels) {
  const Tensor logits = Tensor::from({1, -2, 0.5, 3, 0, -1}, {2, 3}, DType::f64);
  const Tensor two = Tensor::from({0, 2, 1, 1}, {2, 2}, DType::i32),
               one = Tensor::from({0, 1}, {2}, DType::i32);
  const Tensor even = Tensor::from({0.25, 0.75, 0.5, 0.5}, {2, 2}),
               first = Tensor::from({1, 0, 1, 0}, {2, 2});
  const auto loss = [&](double smoothing, const Tensors& labels) {
    Tensors batch{Tensor()};
    batch.insert(batch.end(), labels.begin(), labels.end());
    return classification(smoothing).loss(logits, batch).item();
  };
  for (const double s : {0.0, 0.25, 1.0}) EXPECT_NEAR(loss(s, {one}), loss(s, {two, first}), 1e-12) << s;
  const double sharp = loss(0, {two, even}), uniform = loss(1, {two, even});
  EXPECT_NE(sharp, uniform);
  EXPECT_NEAR(0.75 * sharp + 0.25 * uniform, loss(0.25, {two, even}), 1e-12);
  for (const double s : {-0.1, 7.0, std::numeric_limits<double>::quiet_NaN()})
    expect_error([&] { classification(s); }, {"label smoothing", "between 0 and 1"});
}

// The time of the whole step, not only of forward.
TEST_F(Trainers, ARunOfOneBatchReportsItsWholeTime) {
  TrainerOptions o = options();
  o.batches = 1;
  Trainer trainer(net, samples(), std::move(o));
  double first = 0;
  trainer.add({.batch = [&](const BatchResult& b) { first = b.seconds; }});
  EXPECT_GT(trainer.fit().step_ms, 1e3 * first);
}

struct Wide : nn::Module {
  nn::Linear first{*this, "first", {.in = 4, .out = 512}}, second{*this, "second", {.in = 512, .out = 512}};
  nn::Linear third{*this, "third", {.in = 512, .out = 512}}, head{*this, "head", {.in = 512, .out = 3}};
  Tensor forward(const Tensor& x) override { return head(relu(third(relu(second(relu(first(x))))))); }
};

// Forward, backward, and update, also if the schedule is drained after each batch.
TEST_F(Trainers, SecondsOfABatchCoverAllOfItsWork) {
  for (const std::int64_t checkpoint_every : {0, 1}) {
    Wide wide;
    wide.initialize(run_seed());
    Told told;
    TrainerOptions o = options();
    o.batch_size = 128;
    o.epochs = 1;
    o.checkpoint_every = checkpoint_every;
    Trainer trainer(wide, samples(128 * 20), std::move(o));
    trainer.add(remember(told));
    const double begin = steady_seconds();
    trainer.fit();
    const double all = steady_seconds() - begin;
    double batches = 0;
    for (const auto& batch : told.batches) batches += batch.seconds;
    EXPECT_LE(batches, all);
    EXPECT_GT(batches, 0.1 * all);  // copying the state takes half, and other programs may use the machine
  }
}

TEST_F(Trainers, EpochsGiveMeansAndTheAccuracyOfTheWholeTestSet) {
  Told told;
  const auto test = samples(13);
  TrainerOptions o = options();
  o.test = test;
  Trainer trainer(net, samples(), std::move(o));
  trainer.add(remember(told));
  const EpochResult end = trainer.fit();
  ASSERT_EQ(3u, told.epochs.size());
  for (std::size_t e = 0; e < 3; ++e) {
    double sum = 0, parts = 0;
    for (std::size_t b = 3 * e; b < 3 * e + 3; ++b) {
      const double part = static_cast<double>(told.batches[b].samples) / 8;
      sum += part * told.batches[b].loss[0];
      parts += part;
    }
    EXPECT_EQ(sum / parts, told.epochs[e].loss.at(0));
    EXPECT_EQ(static_cast<std::int64_t>(3 * e + 3), told.epochs[e].batches);
    EXPECT_GT(told.epochs[e].step_ms, 0);
  }
  const NoGrad no_grad;
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < 13; ++i) {
    const Sample s = sample_of(*test, 0, i);
    Tensor x = Tensor::empty({DType::f32, {1, 4}});
    std::copy(s.data.begin(), s.data.end(), x.as<std::byte>());
    right += static_cast<std::int64_t>(
        correct_count(net(x), Tensor::from({static_cast<double>(s.labels[0])}, {1}, DType::i32)).item());
  }
  EXPECT_EQ(static_cast<double>(right) / 13, end.accuracy.at(0));
  EXPECT_EQ(end.accuracy, told.epochs.back().accuracy);
}

TEST_F(Trainers, ResumeBitwiseFromAnyCheckpoint) {
  const auto fit = [&](const CheckpointResult* from) {
    TrainerOptions o = options();
    o.checkpoint_every = 2;
    o.test = samples(13);
    o.lr_schedule = [](const RunLength& run, double) { return cosine_lr(run.total); };
    auto told = std::make_unique<Told>();
    net.initialize(run_seed());
    Trainer trainer(net, samples(), std::move(o));
    trainer.add(remember(*told));
    if (from) trainer.load(from->state, from->progress);
    const EpochResult end = trainer.fit();
    EXPECT_EQ(end.loss, told->epochs.back().loss);
    return std::pair(trainer.session().state(), std::move(told));
  };
  const auto [whole, told] = fit(nullptr);
  ASSERT_EQ(5u, told->checkpoints.size());
  for (std::size_t c = 0; c + 1 < told->checkpoints.size(); ++c) {
    const auto [state, rest] = fit(&told->checkpoints[c]);
    expect_same_state(whole, state);
    EXPECT_EQ(told->epochs.back().loss, rest->epochs.back().loss) << "the loss is that of the whole epoch";
    EXPECT_EQ(told->batches.back().loss, rest->batches.back().loss);
  }
}

TEST_F(Trainers, TrainTheSameOnRanksAndInStages) {
  const auto fit = [&](int replicas, int stages, int microbatches) {
    TrainerOptions o = options();
    o.drop_last = true;
    o.workers = 1;
    o.test = samples(13);
    o.strategy.replicas = replicas;
    o.strategy.stages = stages;
    o.strategy.microbatches = microbatches;
    if (stages > 1) o.strategy.schedule = "1f1b";
    net.initialize(run_seed());
    Trainer trainer(net, samples(), std::move(o));
    const EpochResult end = trainer.fit();
    return std::pair(end, trainer.session().state());
  };
  const auto [loss, state] = fit(1, 1, 2);
  const auto [ranked, ranked_state] = fit(2, 1, 1);
  EXPECT_EQ(loss.loss, ranked.loss) << "the sum of two halves";
  expect_same_state(state, ranked_state);
  const auto [staged, staged_state] = fit(1, 2, 2);
  EXPECT_EQ(loss.loss, staged.loss);
  EXPECT_EQ(loss.accuracy, staged.accuracy);
  expect_same_state(state, staged_state);
}

TEST_F(Trainers, StopEarlyIfTheAccuracyDoesNotImprove) {
  Told told;
  TrainerOptions o = options();
  o.epochs = 50;
  o.lr = {0};  // the first epoch's accuracy stays the best
  o.test = samples(13);
  o.patience = 2;
  Trainer trainer(net, samples(), std::move(o));
  trainer.add(remember(told));
  EXPECT_EQ(3 * 3, trainer.fit().batches);
  EXPECT_EQ("end", told.calls.back());
  const TrainProgress stopped = trainer.progress();
  trainer.load(trainer.session().state(), stopped);
  EXPECT_EQ(3 * 3, trainer.fit().batches) << "a finished run trains no further";
}

TEST_F(Trainers, EndAfterTheEpochIfACallbackAsksForIt) {
  Trainer trainer(net, samples(), options());
  trainer.add({.batch = [&](const BatchResult& b) {
    if (b.batch == 4) trainer.stop_after_epoch();
  }});
  EXPECT_EQ(6, trainer.fit().batches);
}

TEST_F(Trainers, PassOnExceptionsOfCallbacks) {
  Trainer trainer(net, samples(), options());
  trainer.add({.batch = [](const BatchResult& b) {
    if (b.batch == 4) throw std::runtime_error("the disk is full");
  }});
  try {
    trainer.fit();
    FAIL() << "nothing was thrown";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string::npos, std::string(e.what()).find("the disk is full")) << e.what();
  }
}

TEST_F(Trainers, TrainOnSoftLabels) {
  const auto mixed = std::make_shared<MixedLabels>(22, run_seed());
  Told told;
  TrainerOptions o = options();
  o.epochs = 1;
  Trainer trainer(net, mixed, std::move(o));
  trainer.add(remember(told));
  trainer.fit();
  net.initialize(run_seed());
  Tensor x = Tensor::empty({DType::f32, {8, 4}});
  double expected = 0;
  const NoGrad no_grad;
  for (std::int64_t i = 0; i < 8; ++i) {  // −Σ w·log softmax, sample by sample
    const Sample s = sample_of(*mixed, 0, i);
    Tensor one = Tensor::empty({DType::f32, {1, 4}});
    std::copy(s.data.begin(), s.data.end(), one.as<std::byte>());
    const auto logarithm = log_softmax(net(one)).values();
    for (std::size_t l = 0; l < 2; ++l)
      expected -= static_cast<double>(s.weights[l]) * logarithm[static_cast<std::size_t>(s.labels[l])] / 8;
  }
  EXPECT_NEAR(expected, told.batches.at(0).loss.at(0), 1e-6);
}

TEST(LossSums, HaveNoMeanIfNoLossIsFinite) {
  LossSums sums;
  sums.add({2, std::nan("")}, 1);
  sums.add({4, -std::numeric_limits<double>::infinity()}, 0.5);
  EXPECT_EQ((2 + 0.5 * 4) / 1.5, sums.mean().at(0));
  EXPECT_TRUE(std::isnan(sums.mean().at(1))) << "0 would look like a loss";
  EXPECT_EQ(2, sums.not_finite);
}

// The loss does not read this head, with stages too.
TEST_F(Trainers, KeepStateThatTheModelDoesNotUse) {
  struct WithAnother : Net {
    nn::Linear auxiliary{*this, "auxiliary", {.in = 16, .out = 3}};
  } other;
  for (const int stages : {1, 2}) {
    other.initialize(run_seed());
    net.initialize(run_seed());
    const auto before = other.state();
    const auto in_stages = [&] {
      TrainerOptions o = options();
      o.batch_size = 11;
      o.checkpoint_every = 2;
      o.strategy.stages = stages;
      o.strategy.schedule = stages == 2 ? "1f1b" : "plain";
      return o;
    };
    Told told;
    Trainer trainer(other, samples(), in_stages());
    trainer.add(remember(told));
    trainer.fit();
    Trainer(net, samples(), in_stages()).fit();
    const auto after = other.state();
    for (const char* path : {"auxiliary.weight", "auxiliary.bias"}) {
      EXPECT_EQ(before.at(path).values(), after.at(path).values());
      EXPECT_EQ(before.at(path).values(), told.checkpoints.at(0).state.at(path).values());
    }
    for (const auto& [path, value] : net.state()) EXPECT_EQ(value.values(), after.at(path).values()) << path;
  }
}

TEST_F(Trainers, LeaveEveryModuleInItsMode) {
  for (const bool training : {true, false})
    for (const bool drop_last : {true, false}) {
      net.train(training);
      net.second.train(!training);
      TrainerOptions o = options();
      o.epochs = 1;
      o.drop_last = drop_last;
      o.test = samples(13);
      Trainer(net, samples(), std::move(o)).fit();
      EXPECT_EQ(training, net.training());
      EXPECT_EQ(training, net.first.training());
      EXPECT_EQ(!training, net.second.training());
    }
}

TEST_F(Trainers, CountCorrectSamplesAsIntegers) {
  TrainerOptions o = options();
  o.test = samples(13);
  o.objective.correct = [](const Tensor& output, const Tensors& batch) {
    return mean(cast(equal(argmax(output, 1), batch[1]), DType::f32));
  };
  expect_error([&] { Trainer(net, samples(), std::move(o)); }, {"objective.correct gives f32[]", "i32 []"});
}

TEST_F(Trainers, RefuseInvalidRatesAlsoFromASchedule) {
  for (const double rate : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    TrainerOptions o = options();
    o.lr_schedule = [=](const RunLength&, double) -> LrSchedule {
      return [=](std::int64_t b) { return b == 2 ? rate : 1; };
    };
    Trainer trainer(net, samples(), std::move(o));
    expect_error([&] { trainer.fit(); }, {"a learning rate of", "0 or more"});
  }
}

// It would wait for the lane that is calling.
TEST_F(Trainers, RefuseToEvaluateDuringABatch) {
  TrainerOptions o = options();
  o.test = samples(13);
  Trainer trainer(net, samples(), std::move(o));
  trainer.add({.batch = [&](const BatchResult&) { trainer.evaluate(); }});
  expect_error([&] { trainer.fit(); }, {"the session is running", "not from a callback on a batch"});
}

TEST_F(Trainers, EndAfterBatchesIfEpochsNeverEnd) {
  TrainerOptions o = options();
  o.epochs = std::numeric_limits<std::int64_t>::max();
  o.batches = 4;
  EXPECT_EQ(4, Trainer(net, samples(), std::move(o)).fit().batches);
}

TEST_F(Trainers, RefuseInvalidOptions) {
  const auto refused = [&](const std::string& words, const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions o = options();
    change(o);
    expect_error([&] { Trainer(net, samples(), std::move(o)); }, {words});
  };
  refused("batches of 23 samples from a dataset of 22", [](auto& o) { o.batch_size = 23; });
  refused("epochs 0, batches 0: give one", [](auto& o) { o.epochs = 0; });
  refused("2 learning rates and 1 seed for 1 model", [](auto& o) { o.lr = {1, 2}; });
  refused("a strategy of 0 replicas", [](auto& o) { o.strategy.replicas = 0; });
  refused("a strategy of 0 micro-batches", [](auto& o) { o.strategy.microbatches = 0; });
  refused("a learning rate of nan", [](auto& o) { o.lr = {std::nan("")}; });
  refused("a learning rate of -1", [](auto& o) { o.lr = {-1}; });
  refused("the objective has no loss", [](auto& o) { o.objective = {}; });
  refused("needs objective.correct", [&](auto& o) {
    o.test = samples();
    o.objective.correct = nullptr;
  });
  refused("schedule gives an empty function",
          [](auto& o) { o.lr_schedule = [](const RunLength&, double) { return LrSchedule(); }; });
  EXPECT_THROW(Trainer(net, nullptr, options()), Error);
  refused("built for no kernels", [](auto& o) { o.strategy.kernels = nullptr; });
  refused("a null pointer instead of a Comm", [](auto& o) { o.comms.resize(1); });
  refused("max_rollbacks is negative", [](auto& o) { o.max_rollbacks = -1; });
  refused("patience needs a test set", [](auto& o) { o.patience = 1; });
  refused("all_reduces.threads is []", [](auto& o) { o.all_reduces.threads = {}; });
  refused("all_reduces.threads is [1, 0]", [](auto& o) { o.all_reduces.threads = {1, 0}; });
  refused("unknown policy 'fifo'", [](auto& o) { o.all_reduces.policy = "fifo"; });
  refused("all_reduces.policy is mg-cf", [](auto& o) { o.all_reduces.policy = "mg-cf"; });
  refused("all_reduces.drift is -0.1", [](auto& o) { o.all_reduces.drift = -0.1; });
  refused("all_reduces.drift is nan", [](auto& o) { o.all_reduces.drift = std::nan(""); });
  refused("all_reduces.far_off is 0.9", [](auto& o) { o.all_reduces.far_off = 0.9; });
  refused("all_reduces.far_off is nan", [](auto& o) { o.all_reduces.far_off = std::nan(""); });
  refused(
      "a batch of 6 samples, which 4 replicas × 1 micro-batch do not divide; choose another batch size, or",
      [](auto& o) { o.strategy.replicas = 4; });
}

TEST_F(Trainers, SayWhyUpdatesOfTablesAreDense) {
  struct Words : nn::Module {
    nn::Embedding table{*this, "table", {.count = 2, .features = 4}};
    nn::Linear head{*this, "head", {.in = 4, .out = 3}};
    Tensor forward(const Tensor& x) override {
      return head(mean(table(cast(clamp(x, 0, 1), DType::i32)), {1}));
    }
  } words;
  words.initialize(run_seed());
  TrainerOptions o = options();
  const std::vector<std::string> why{"the update of table 'table.weight' is dense: momentum moves every row"};
  std::vector<std::string> said;
  const auto log = [&](const std::string& line) { said.push_back(line); };
  o.log = log;
  EXPECT_EQ(why, Trainer(words, samples(), std::move(o)).dense_tables());
  EXPECT_EQ(why, said);
  o = options();
  o.strategy.optimizer = SgdOptions{};
  o.log = log;
  EXPECT_EQ(std::vector<std::string>{}, Trainer(words, samples(), std::move(o)).dense_tables());
  EXPECT_EQ(why, said);
}

}  // namespace
}  // namespace tandem::testing
