// Losses and gradients that are not finite: their sources, and how a Trainer responds.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/init.h>
#include <tandem/ops/pointwise.h>
#include <tandem/train/trainer.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "seed.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr std::int64_t kBad = 4;  // the batch that goes wrong
constexpr std::int64_t kBatch = 8, kPerEpoch = 3, kTotal = 9;

enum class Site { input, gradient, rate };

// In batch kBad one sample is NaN, or zero.
class Spoiled final : public ClassDataset {
 public:
  Spoiled(Site site) : ClassDataset(kBatch * kPerEpoch, run_seed()), site_(site) {}
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    ClassDataset::get(epoch, index, sample);
    if (epoch * kPerEpoch + index / kBatch != kBad || index % kBatch != 5 || site_ == Site::rate) return;
    const float value = site_ == Site::input ? std::numeric_limits<float>::quiet_NaN() : 0.f;
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(sample.data.data() + 4 * i, &value, 4);
  }

 private:
  const Site site_;
};

// √(x·w)²: if x is 0, its derivative by w is ∞·0.
struct Root : nn::Module {
  using Module::Module;
  Tensor factor =
      add_parameter({.name = "factor",
                     .tensor = Tensor::empty({DType::f32, {4}}),
                     .initialize = [](const TensorType& type, const std::string& path, std::uint64_t seed) {
                       return init::uniform(type, 0.9, 1.1, path, seed);
                     }});
  Tensor forward(const Tensor& x) override {
    const Tensor y = x * factor;
    return sqrt(y * y);
  }
};
struct Net : nn::Module {
  Root root{*this, "root"};
  nn::Linear first{*this, "first", {.in = 4, .out = 16}}, second{*this, "second", {.in = 16, .out = 16}};
  nn::Linear head{*this, "head", {.in = 16, .out = 3}};
  Tensor forward(const Tensor& x) override { return head(relu(second(relu(first(root(x)))))); }
};

struct Layout {
  const char* name;
  int replicas, stages;
  std::string schedule;
};
struct Outcome {
  std::vector<BatchResult> batches;
  std::vector<NonFiniteBatch> told;
  StateDict state;
  std::string error;
  std::int64_t failed = -1;
};

Outcome fit(Site site, OnNonFinite policy, const Layout& layout, double rate = 0.05) {
  nn::set_default_dtype(DType::f32);
  Net net;
  net.initialize(run_seed());
  TrainerOptions o;
  o.strategy.optimizer = SgdOptions{.momentum = 0.5};
  o.strategy.replicas = layout.replicas;
  o.strategy.stages = layout.stages;
  o.strategy.schedule = layout.schedule;
  if (layout.stages > 1) {
    o.strategy.cuts = {"second"};
    if (layout.schedule == "1f1b") o.strategy.microbatches = 2;
  }
  o.batch_size = kBatch;
  o.epochs = kTotal / kPerEpoch;
  o.lr = {rate};
  if (site == Site::rate)
    o.lr_schedule = [](const RunLength&, double) -> LrSchedule {
      return [](std::int64_t b) { return b == kBad ? std::numeric_limits<double>::max() : 1.0; };
    };
  o.on_non_finite = policy;
  o.checkpoint_every = 3;
  Outcome out;
  Trainer trainer(net, std::make_shared<Spoiled>(site), std::move(o));
  trainer.add({.batch = [&](const BatchResult& b) { out.batches.push_back(b); },
               .non_finite = [&](const NonFiniteBatch& b) { out.told.push_back(b); }});
  try {
    trainer.fit();
    out.state = trainer.session().state();
  } catch (const NonFinite& e) {
    out.error = e.what();
    out.failed = e.batch;
  }
  return out;
}

bool names(const std::string& text, const std::string& module) {
  return text.find("the first value that is not finite is ") != std::string::npos &&
         text.find("'" + module) != std::string::npos;
}

std::vector<std::int64_t> numbers(const Outcome& o) {
  std::vector<std::int64_t> result;
  for (const BatchResult& b : o.batches) result.push_back(b.batch);
  return result;
}

class NonFiniteIn : public ::testing::TestWithParam<Layout> {};

TEST_P(NonFiniteIn, StopNamesTheFirstModule) {
  const Outcome input = fit(Site::input, OnNonFinite::stop, GetParam());
  EXPECT_EQ(kBad, input.failed);
  EXPECT_TRUE(names(input.error, "root")) << input.error;
  for (const Site site : {Site::gradient, Site::rate}) {  // the weights are lost, and then the next loss
    const Outcome o = fit(site, OnNonFinite::stop, GetParam());
    EXPECT_EQ(kBad + 1, o.failed) << o.error;
    EXPECT_TRUE(site == Site::gradient ? names(o.error, "root.factor") : names(o.error, "")) << o.error;
  }
}

TEST_P(NonFiniteIn, SkipOmitsTheUpdateAndRollbackOmitsTheBatch) {
  for (const Site site : {Site::input, Site::gradient}) {
    const Outcome skip = fit(site, OnNonFinite::skip, GetParam()),
                  back = fit(site, OnNonFinite::rollback, GetParam());
    ASSERT_EQ("", skip.error + back.error);
    ASSERT_EQ(1u, skip.told.size());
    EXPECT_EQ(kBad, skip.told[0].batch);
    EXPECT_EQ(-1, skip.told[0].back_to);
    EXPECT_TRUE(names(skip.told[0].where, "root")) << skip.told[0].where;
    for (const BatchResult& b : skip.batches)
      EXPECT_EQ(site == Site::gradient || b.batch != kBad, std::isfinite(b.loss[0])) << b.batch;
    ASSERT_EQ(1u, back.told.size());
    EXPECT_EQ(kBad, back.told[0].batch);
    EXPECT_EQ(3, back.told[0].back_to);
    EXPECT_TRUE(names(back.told[0].where, "root")) << back.told[0].where;
    EXPECT_EQ((site == Site::input ? std::vector<std::int64_t>{0, 1, 2, 3, 3, 5, 6, 7, 8}
                                   : std::vector<std::int64_t>{0, 1, 2, 3, 4, 3, 5, 6, 7, 8}),
              numbers(back));
    for (const BatchResult& b : back.batches) EXPECT_TRUE(std::isfinite(b.loss[0])) << b.batch;
    EXPECT_EQ(skip.batches.back().loss, back.batches.back().loss);
    expect_same_state(skip.state, back.state);
  }
}

// Its gradients are finite but the update is not, which skipping does not see.
TEST_P(NonFiniteIn, ADivergingRateIsRolledBackBecauseSkippingDoesNotHelp) {
  const Outcome skip = fit(Site::rate, OnNonFinite::skip, GetParam());
  ASSERT_EQ(1u, skip.told.size());
  EXPECT_EQ(kBad + 1, skip.told[0].batch);
  EXPECT_TRUE(names(skip.told[0].where, "")) << skip.told[0].where;
  EXPECT_TRUE(std::isnan(skip.batches.back().loss[0]));
  EXPECT_NE(std::string::npos, skip.error.find("the weights are not finite after 6 batches")) << skip.error;
  const Outcome back = fit(Site::rate, OnNonFinite::rollback, GetParam());
  ASSERT_EQ("", back.error);
  ASSERT_EQ(1u, back.told.size());
  EXPECT_EQ(kBad, back.told[0].batch);
  for (const BatchResult& b : back.batches) EXPECT_TRUE(std::isfinite(b.loss[0])) << b.batch;
  EXPECT_EQ((std::vector<std::int64_t>{0, 1, 2, 3, 4, 3, 5, 6, 7, 8}), numbers(back));
}

TEST_P(NonFiniteIn, RollbacksAreLimited) {
  const Outcome o = fit(Site::input, OnNonFinite::rollback, GetParam(), /*rate=*/1e30);
  EXPECT_NE(std::string::npos, o.error.find("after 3 rollbacks")) << o.error;
  EXPECT_TRUE(names(o.error, "")) << o.error;
  EXPECT_EQ(3u, o.told.size());
}

INSTANTIATE_TEST_SUITE_P(Layouts, NonFiniteIn,
                         ::testing::Values(Layout{"OneRank", 1, 1, "plain"},
                                           Layout{"TwoRanks", 2, 1, "plain"},
                                           Layout{"Pipeline", 1, 2, "1f1b"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(NonFinites, OfSeveralBatchesInFlightAreRolledBackAndCannotBeSkipped) {
  const Layout dualpipe{"DualPipe", 1, 2, "dualpipe"};
  expect_error([&] { fit(Site::input, OnNonFinite::skip, dualpipe); }, {"use one that flushes"});
  for (const Site site : {Site::input, Site::gradient}) {
    const Outcome o = fit(site, OnNonFinite::rollback, dualpipe);
    EXPECT_EQ("", o.error);
    ASSERT_EQ(1u, o.told.size());
    EXPECT_EQ(kBad, o.told[0].batch);
    EXPECT_TRUE(std::isfinite(o.batches.back().loss[0]));
  }
}

struct RunThatRollsBack {
  explicit RunThatRollsBack(std::int64_t checkpoint_every) {
    nn::set_default_dtype(DType::f32);
    net.initialize(run_seed());
    options.batch_size = kBatch;
    options.epochs = kTotal / kPerEpoch;
    options.on_non_finite = OnNonFinite::rollback;
    options.checkpoint_every = checkpoint_every;
  }
  Net net;
  TrainerOptions options;
};

// The update of an epoch's last batch, after which there is an evaluation and no checkpoint.
TEST(NonFinites, OfAnEpochsLastUpdateAreRolledBackBeforeEvaluation) {
  RunThatRollsBack run(4);
  run.options.test = std::make_shared<ClassDataset>(13, run_seed());
  run.options.lr_schedule = [](const RunLength&, double) -> LrSchedule {
    return [](std::int64_t b) { return b == 2 * kPerEpoch - 1 ? std::numeric_limits<double>::max() : 1; };
  };
  std::vector<NonFiniteBatch> told;
  std::vector<std::int64_t> epochs;
  Trainer trainer(run.net, std::make_shared<Spoiled>(Site::rate), std::move(run.options));
  trainer.add({.end_epoch = [&](const EpochResult& e) { epochs.push_back(e.epoch); },
               .non_finite = [&](const NonFiniteBatch& b) { told.push_back(b); }});
  const EpochResult end = trainer.fit();
  ASSERT_EQ(1u, told.size());
  EXPECT_EQ(2 * kPerEpoch - 1, told[0].batch);
  EXPECT_EQ(4, told[0].back_to);
  EXPECT_EQ((std::vector<std::int64_t>{0, 1, 2}), epochs);
  EXPECT_TRUE(std::isfinite(end.loss.at(0)));
}

// 22 samples in batches of 8: the third batch of an epoch has 6. The search for the bad batch crosses the end
// of the epoch.
TEST(NonFinites, AreRolledBackOverEpochsWithAShortLastBatch) {
  for (const std::string schedule : {"plain", "dualpipe"}) {
    RunThatRollsBack run(7);
    if (schedule == "dualpipe") run.options.strategy.stages = 2;
    run.options.strategy.schedule = schedule;
    run.options.test = std::make_shared<ClassDataset>(13, run_seed());
    run.options.lr_schedule = [](const RunLength&, double) -> LrSchedule {
      return [](std::int64_t b) { return b == 5 ? std::numeric_limits<double>::max() : 1; };
    };
    std::vector<NonFiniteBatch> told;
    std::vector<std::int64_t> batches;
    std::vector<double> accuracies;
    Trainer trainer(run.net, std::make_shared<ClassDataset>(22, run_seed()), std::move(run.options));
    trainer.add({.batch = [&](const BatchResult& b) { batches.push_back(b.batch); },
                 .end_epoch = [&](const EpochResult& e) { accuracies.push_back(e.accuracy.at(0)); },
                 .non_finite = [&](const NonFiniteBatch& b) { told.push_back(b); }});
    trainer.fit();
    ASSERT_EQ(1u, told.size());
    EXPECT_EQ(5, told[0].batch);
    EXPECT_EQ(0, told[0].back_to);
    EXPECT_EQ((std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 6, 7, 8}), batches);
    EXPECT_EQ(4u, accuracies.size()) << "epoch 0 is evaluated twice";
    EXPECT_EQ(accuracies[0], accuracies[1]);
  }
}

// The next run would start from that checkpoint.
TEST(NonFinites, AreNotSaved) {
  RunThatRollsBack run(kPerEpoch);
  run.options.on_non_finite = OnNonFinite::stop;
  run.options.lr_schedule = [](const RunLength&, double) -> LrSchedule {
    return [](std::int64_t b) { return b == 2 * kPerEpoch - 1 ? std::numeric_limits<double>::max() : 1; };
  };
  std::vector<std::int64_t> saved;
  Trainer trainer(run.net, std::make_shared<Spoiled>(Site::rate), std::move(run.options));
  trainer.add({.checkpoint = [&](const CheckpointResult& c) { saved.push_back(c.progress.batch); }});
  try {
    trainer.fit();
    FAIL() << "trained on";
  } catch (const NonFinite& e) {
    EXPECT_NE(std::string::npos, std::string(e.what()).find("the weights are not finite after 6 batches"));
    EXPECT_TRUE(names(e.what(), "")) << e.what();
  }
  EXPECT_EQ((std::vector<std::int64_t>{kPerEpoch}), saved);
}

// The failed run does not affect the next one, which starts from finite weights and is told of bad batches
// again.
TEST(NonFinites, ATrainerCanFitAgainAfterFailedRollbacks) {
  RunThatRollsBack run(3);
  run.options.max_rollbacks = 0;
  Trainer trainer(run.net, std::make_shared<Spoiled>(Site::input), std::move(run.options));
  int batches = 0;
  trainer.add({.batch = [&](const BatchResult&) { ++batches; }});
  EXPECT_THROW(trainer.fit(), NonFinite);
  batches = 0;
  trainer.load(run.net.state());
  EXPECT_THROW(trainer.fit(), NonFinite);
  EXPECT_EQ(4, batches) << "only the batches before the spoiled one";
}

// The batch after a rollback takes no longer than others: the search for the bad batch is not training time.
TEST(NonFinites, SecondsOfABatchExcludeARollback) {
  RunThatRollsBack run(3);
  double batches = 0, back = 0;
  Trainer trainer(run.net, std::make_shared<Spoiled>(Site::input), std::move(run.options));
  trainer.add({.batch = [&](const BatchResult& b) { batches += b.seconds; },
               .non_finite =
                   [&](const NonFiniteBatch&) {
                     batches = 0;
                     back = steady_seconds();
                   }});
  trainer.fit();
  ASSERT_GT(back, 0);
  EXPECT_LE(batches, steady_seconds() - back);
}

// An epoch that ended at the checkpoint stays counted. Nothing is learned here, so the first epoch is the
// best.
TEST(NonFinites, RollbacksKeepThePatienceOfTheirCheckpoint) {
  RunThatRollsBack run(kPerEpoch);
  run.options.lr = {0};
  run.options.test = std::make_shared<ClassDataset>(13, run_seed());
  std::vector<std::int64_t> since_best, rollbacks;
  Trainer trainer(run.net, std::make_shared<Spoiled>(Site::input), std::move(run.options));
  trainer.add({.checkpoint = [&](const CheckpointResult& c) {
    since_best.push_back(c.progress.epochs_since_best);
    rollbacks.push_back(c.progress.rollbacks);
  }});
  trainer.fit();
  EXPECT_EQ((std::vector<std::int64_t>{0, 1, 1}), rollbacks);
  EXPECT_EQ((std::vector<std::int64_t>{0, 1, 2}), since_best);
}

// Rollbacks before the last checkpoint count too: the checkpoint holds their number.
TEST(NonFinites, RollbacksAreCountedOverTheWholeRun) {
  const auto fit_after = [](std::int64_t rollbacks) {
    Net net;
    net.initialize(run_seed());
    TrainerOptions o;
    o.batch_size = kBatch;
    o.epochs = kTotal / kPerEpoch;
    o.on_non_finite = OnNonFinite::rollback;
    o.checkpoint_every = 3;
    o.max_rollbacks = 2;
    std::vector<std::int64_t> saved;
    Trainer trainer(net, std::make_shared<Spoiled>(Site::input), std::move(o));
    trainer.add({.checkpoint = [&](const CheckpointResult& c) { saved.push_back(c.progress.rollbacks); }});
    TrainProgress before;
    before.rollbacks = rollbacks;
    trainer.load(net.state(), before);
    trainer.fit();
    return saved;
  };
  EXPECT_EQ((std::vector<std::int64_t>{1, 2, 2}), fit_after(1));
  EXPECT_THROW(fit_after(2), NonFinite);
}

TEST(NonFinites, AreRolledBackOnlyToCheckpoints) {
  Net net;
  net.initialize(1);
  TrainerOptions o;
  o.batch_size = kBatch;
  o.on_non_finite = OnNonFinite::rollback;
  EXPECT_THROW(Trainer(net, std::make_shared<Spoiled>(Site::input), std::move(o)), Error);
}

}  // namespace
}  // namespace tandem::testing
