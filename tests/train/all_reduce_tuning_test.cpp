// All-reduces that a run plans from its first batches.
#include <cmath>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/dist/link.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/pointwise.h>
#include <tandem/train/trainer.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 4, .out = 64}}, second{*this, "second", {.in = 64, .out = 64}};
  nn::Linear third{*this, "third", {.in = 64, .out = 64}}, head{*this, "head", {.in = 64, .out = 3}};
  Tensor forward(const Tensor& x) override { return head(relu(third(relu(second(relu(first(x))))))); }
};
constexpr int kGradients = 8;

struct Trained {
  std::vector<double> losses;
  StateDict state;
  std::vector<AllReduceReport> reports;
};

Trained train(const std::string& policy, int ranks, std::int64_t batches, TrainerOptions o = {},
              const CommOptions& comm = {.link = LinkModel{1e-4, 200e6}}) {
  Net net;
  net.initialize(run_seed());
  o.batch_size = 4 * ranks;
  o.epochs = 0;
  o.batches = batches;
  o.lr = {0.05};
  o.strategy.replicas = ranks;
  o.strategy.threads = 1;
  o.strategy.optimizer = SgdOptions{.momentum = 0.9};
  o.all_reduce = policy;
  o.all_reduce_threads = {1, 2, 3};
  o.comms = thread_comms(ranks * o.strategy.stages, comm);
  Trainer trainer(net, std::make_shared<ShuffledDataset>(std::make_shared<ClassDataset>(70, run_seed()), 5),
                  std::move(o));
  Trained t;
  trainer.add({.batch = [&](const BatchResult& b) { t.losses.push_back(b.loss[0]); },
               .all_reduces_planned = [&](const AllReduceReport& r) { t.reports.push_back(r); }});
  trainer.fit();
  t.state = trainer.session().state();
  return t;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [path, tensor] : a.state) EXPECT_EQ(tensor.values(), b.state.at(path).values()) << path;
}

// 70 samples in batches of 8 or 12: epochs have short last batches, which the tuning leaves alone.
TEST(AllReduceTuning, ChangesNoBit) {
  for (const int ranks : {2, 3}) {
    const Trained plain = train("", ranks, 60, {.drop_last = ranks == 3});
    EXPECT_TRUE(plain.reports.empty());
    for (const std::string policy : {"libra", "mg-wfbp", "libra-m"}) {
      const Trained planned = train(policy, ranks, 60, {.drop_last = ranks == 3});
      expect_same(planned, plain);
      ASSERT_EQ(planned.reports.size(), 1u) << policy;
    }
  }
}

TEST(AllReduceTuning, ReportsWhatItMeasuredAndPlanned) {
  const AllReduceReport r = train("mg-opt", 2, 60, {.drop_last = true}).reports.at(0);
  EXPECT_LE(r.batches, kMostTuningBatches);
  ASSERT_EQ(r.stages.size(), 1u);
  const StageAllReduces& stage = r.stages[0];
  ASSERT_EQ(stage.layers.size(), std::size_t{kGradients});
  double compute = 0;
  for (const GradientLayer& l : stage.layers) compute += l.compute_ms;
  EXPECT_GT(compute, 0);
  EXPECT_NO_THROW(require_each_layer_once(stage.layers, stage.plan.groups));
  EXPECT_EQ(stage.plan.policy, "mg-opt");
  EXPECT_EQ(stage.predicted.at(0).first, "mg-opt");
  EXPECT_EQ(stage.predicted.size(), 5u);
  EXPECT_GT(stage.measured_ms, compute);
  EXPECT_EQ(stage.fit.contention.known_threads(), (std::vector<int>{1, 2, 3}));
  for (const int threads : {1, 2, 3}) {  // no faster than the link, and some noise
    const ThreadRates rates = stage.fit.contention.at(threads);
    const double ms = stage.fit.startup_ms + 16e3 / rates.alone;
    EXPECT_GT(ms, 0.7 * (0.1 + 16e3 / 200e3)) << threads;
  }
}

TEST(AllReduceTuning, WorksForEachStageOfAPipeline) {
  TrainerOptions o;
  o.strategy.stages = 2;
  o.strategy.schedule = ScheduleKind::one_f_one_b;
  o.strategy.microbatches = 2;
  o.drop_last = true;
  const Trained plain = train("", 2, 50, {.strategy = o.strategy, .drop_last = true});
  const Trained planned = train("libra", 2, 50, {.strategy = o.strategy, .drop_last = true});
  expect_same(planned, plain);
  ASSERT_EQ(planned.reports.size(), 1u);
  ASSERT_EQ(planned.reports[0].stages.size(), 2u);
  for (const StageAllReduces& s : planned.reports[0].stages) EXPECT_FALSE(s.plan.groups.empty());
}

TEST(AllReduceTuning, EndsWithAShortRun) {
  for (const std::int64_t batches : {1, 6, 7, 20, 34, 35})
    expect_same(train("libra", 2, batches), train("", 2, batches));
}

TEST(AllReduceTuning, RefusesWhatItCannotPlan) {
  expect_error([] { train("horovod", 2, 10); }, {"'horovod'", "measured times"});
  expect_error([] { train("se", 2, 10); }, {"'se'", "measured times"});
  expect_error([] { train("fifo", 2, 10); }, {"fifo"});
  TrainerOptions lagged;
  lagged.strategy.stages = 2;
  lagged.strategy.schedule = ScheduleKind::pipedream;
  expect_error([&] { train("libra", 2, 10, {.strategy = lagged.strategy, .drop_last = true}); },
               {"several batches in flight"});
}

}  // namespace
}  // namespace tandem::testing
