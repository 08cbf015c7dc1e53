// All-reduces that a run plans from its first batches.
#include <atomic>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/dist/all_reduce_policies.h>
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
  explicit Net(std::int64_t width) : width(width) {}
  const std::int64_t width;
  nn::Linear first{*this, "first", {.in = 4, .out = width}},
      second{*this, "second", {.in = width, .out = width}};
  nn::Linear third{*this, "third", {.in = width, .out = width}}, head{*this, "head", {.in = width, .out = 3}};
  Tensor forward(const Tensor& x) override { return head(relu(third(relu(second(relu(first(x))))))); }
};
constexpr int kGradients = 8;
constexpr double kInfinity = std::numeric_limits<double>::infinity();  // on a busy machine nothing is far off

struct Way {  // to reduce gradients
  CommOptions comm = {.link = LinkModel{1e-4, 200e6}};
  std::vector<int> threads = {1, 2, 3};
  std::int64_t width = 64;
};

struct Trained {
  std::vector<double> losses;
  StateDict state;
  std::vector<AllReduceReport> reports;
  std::string why_unfit;
  std::int64_t planned_peak = 0;
};

Trained train(const std::string& policy, int ranks, std::int64_t batches, TrainerOptions o = {},
              const Way& way = {}) {
  Net net(way.width);
  net.initialize(run_seed());
  o.batch_size = 4 * ranks;
  o.epochs = 0;
  o.batches = batches;
  o.lr = {0.05};
  o.strategy.replicas = ranks;
  o.strategy.threads = 1;
  o.strategy.optimizer = SgdOptions{.momentum = 0.9};
  o.all_reduces.policy = policy;
  o.all_reduces.threads = way.threads;
  o.comms = thread_comms(ranks * o.strategy.stages, way.comm);
  Trainer trainer(net, std::make_shared<ShuffledDataset>(std::make_shared<ClassDataset>(70, run_seed()), 5),
                  std::move(o));
  Trained t;
  trainer.add({.batch = [&](const BatchResult& b) { t.losses.push_back(b.loss[0]); },
               .all_reduces_planned = [&](const AllReduceReport& r) { t.reports.push_back(r); }});
  t.why_unfit = trainer.why_saved_all_reduces_are_unfit();
  trainer.fit();
  t.state = trainer.session().state();
  t.planned_peak = trainer.session().planned_peak();
  return t;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [path, tensor] : a.state) EXPECT_EQ(tensor.values(), b.state.at(path).values()) << path;
}

// Once, and for all devices.
void expect_planned(const Trained& t) {
  ASSERT_EQ(t.reports.size(), 1u);
  for (const DeviceAllReduces& d : t.reports[0].devices) ASSERT_FALSE(d.plan.groups.empty());
}

// 70 samples in batches of 8 or 12: epochs have short last batches, which the tuning leaves alone.
TEST(AllReduceTuning, ChangesNoBit) {
  for (const int ranks : {2, 3}) {
    const Trained plain = train("", ranks, 60, {.drop_last = ranks == 3});
    EXPECT_TRUE(plain.reports.empty());
    for (const std::string policy : {"libra", "mg-wfbp", "libra-m", "horovod", "se"}) {
      const Trained planned = train(policy, ranks, 60, {.drop_last = ranks == 3});
      expect_same(planned, plain);
      expect_planned(planned);
    }
  }
}

// A net so wide that its gradients take several segments, and several threads if they are reduced together.
// Over the numbers of ranks, each policy gets both algorithms, and each number of threads.
TEST(AllReduceTuning, ChangesNoBitByAnyAlgorithmSegmentsOrThreads) {
  constexpr std::int64_t kWidth = 192, kBatches = 44;
  for (const int ranks : {2, 3, 4}) {
    const Trained plain = train("", ranks, kBatches, {.drop_last = true}, {.threads = {1}, .width = kWidth});
    int n = ranks;
    for (const AllReducePolicy& policy : all_reduce_policies()) {
      if (policy.name == "mg-cf") continue;  // only simulated
      ++n;
      CommOptions comm{.collective = n % 2 == 0 ? CollectiveAlgorithm::direct : CollectiveAlgorithm::ring};
      if (n / 2 % 2 == 0) comm.segment_bytes = 20'000;
      const Way way{comm, {1 + n % 3}, kWidth};
      SCOPED_TRACE(::testing::Message() << policy.name << ", " << ranks << " ranks, case " << n);
      const Trained planned = train(std::string(policy.name), ranks, kBatches, {.drop_last = true}, way);
      expect_same(planned, plain);
      ASSERT_NO_FATAL_FAILURE(expect_planned(planned));
      for (const AllReduceGroup& g : planned.reports[0].devices[0].plan.groups)
        EXPECT_EQ(g.rates.threads, way.threads[0]);
    }
  }
}

TEST(AllReduceTuning, ReportsWhatItMeasuredAndPlanned) {
  const AllReduceReport r = train("mg-opt", 2, 60, {.drop_last = true}).reports.at(0);
  EXPECT_LE(r.batches, kMostTuningBatches);
  ASSERT_EQ(r.devices.size(), 1u);
  const DeviceAllReduces& device = r.devices[0];
  ASSERT_EQ(device.profile.layers.size(), std::size_t{kGradients});
  double compute = 0;
  for (const GradientLayer& l : device.profile.layers) compute += l.compute_ms;
  EXPECT_GT(compute, 0);
  EXPECT_NO_THROW(require_each_layer_once(device.profile.layers, device.plan.groups));
  EXPECT_EQ(device.plan.policy, "mg-opt");
  EXPECT_EQ(device.predicted.at(0).first, "mg-opt");
  EXPECT_EQ(device.predicted.size(), 5u);
  EXPECT_GT(device.measured_ms, 0);
  EXPECT_EQ(device.profile.contention.known_threads(), (std::vector<int>{1, 2, 3}));
  for (const int threads : {1, 2, 3}) {  // no faster than the link, and some noise
    const ThreadRates rates = device.profile.contention.at(threads);
    const double ms = 2 * device.profile.hop_latency_ms + 16e3 / rates.alone;
    EXPECT_GT(ms, 0.7 * (0.1 + 16e3 / 200e3)) << threads;
  }
}

TEST(AllReduceTuning, TakesNumbersOfThreadsInAnyOrder) {
  const Trained t = train("mg-opt", 2, 60, {.drop_last = true}, {.threads = {3, 1, 2, 1}});
  expect_planned(t);
  const DeviceAllReduces& device = t.reports.at(0).devices[0];
  EXPECT_EQ(device.profile.comm_threads, (std::vector<int>{1, 2, 3}));
  for (const AllReduceGroup& g : device.plan.groups) EXPECT_EQ(g.rates.threads, 1) << "the smallest";
}

TEST(AllReduceTuning, WorksForEachDeviceOfAPipeline) {
  TrainerOptions o;
  o.strategy.stages = 2;
  o.strategy.schedule = "1f1b";
  o.strategy.microbatches = 2;
  o.drop_last = true;
  const Trained plain = train("", 2, 50, {.strategy = o.strategy, .drop_last = true});
  const Trained planned = train("libra", 2, 50, {.strategy = o.strategy, .drop_last = true});
  expect_same(planned, plain);
  ASSERT_EQ(planned.reports.size(), 1u);
  ASSERT_EQ(planned.reports[0].devices.size(), 2u);
  for (const DeviceAllReduces& d : planned.reports[0].devices) EXPECT_FALSE(d.plan.groups.empty());
}

TEST(AllReduceTuning, EndsWithAShortRun) {
  for (const std::int64_t batches : {1, 6, 7, 20, 34, 35})
    expect_same(train("libra", 2, batches), train("", 2, batches));
  expect_words(train("libra", 2, 1).reports.at(0).warnings.at(0), {"1 batch is left, and it takes 40"});
}

TEST(AllReduceTuning, RefusesWhatItCannotPlan) {
  for (const int ranks : {1, 2}) {
    expect_error([&] { train("mg-cf", ranks, 10); }, {"mg-cf", "only simulated"});
    expect_error([&] { train("fifo", ranks, 10); }, {"fifo"});
  }
  for (const std::string policy : {"libra", "auto"}) {
    TrainerOptions o;
    o.strategy.fusion_groups = {{{"head.weight", "head.bias"}}};
    expect_error([&] { train(policy, 2, 10, std::move(o)); },
                 {"all_reduces.policy is " + policy, "fusion_groups", "leave out one"});
  }
}

// What such a schedule learns depends on when it drains, so it must not drain for this.
TEST(AllReduceTuning, RehearsesWithBatchesThatOverlap) {
  for (const std::string schedule : {"pipedream", "dualpipe"}) {
    TrainerOptions o;
    o.strategy.stages = 2;
    o.strategy.schedule = schedule;
    o.drop_last = true;
    for (const std::int64_t batches : {3, 20}) {
      const Trained plain = train("", 2, batches, {.strategy = o.strategy, .drop_last = true});
      const Trained planned = train("libra", 2, batches, {.strategy = o.strategy, .drop_last = true});
      expect_same(planned, plain);
      expect_planned(planned);
    }
  }
}

// Loads no sample after so many.
class ShortOfSamples final : public ClassDataset {
 public:
  ShortOfSamples(std::int64_t size, std::int64_t loads) : ClassDataset(size, run_seed()), left_(loads) {}
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    if (--left_ < 0) throw Error("the disk is gone");
    ClassDataset::get(epoch, index, sample);
  }

 private:
  mutable std::atomic<std::int64_t> left_;
};

// What a rehearsal trained is forgotten also if it fails.
TEST(AllReduceTuning, AFailedRehearsalLeavesTheStateFromBefore) {
  Net net(8);
  net.initialize(run_seed());
  TrainerOptions o;
  o.batch_size = 8;
  o.epochs = 0;
  o.batches = 60;
  o.strategy.replicas = o.strategy.stages = 2;
  o.strategy.schedule = "pipedream";
  o.all_reduces.policy = "libra";
  Trainer trainer(net, std::make_shared<ShortOfSamples>(64, 8 * 20), std::move(o));
  const StateDict before = trainer.session().state();
  expect_error([&] { trainer.fit(); }, {"the disk is gone"});
  const StateDict after = trainer.session().state();
  for (const auto& [path, tensor] : before) EXPECT_EQ(tensor.values(), after.at(path).values()) << path;
}

TEST(AllReduceTuning, PlansAgainWhenBackwardDrifts) {
  TrainerOptions o{.drop_last = true, .all_reduces = {.drift = 0}};  // no two measurements are equal
  const std::int64_t batches = 3 * kLeastBatchesPerPlan;
  const Trained plain = train("", 2, batches, {.drop_last = true});
  const Trained planned = train("libra", 2, batches, std::move(o));
  expect_same(planned, plain);
  ASSERT_EQ(planned.reports.size(), 2u);
  EXPECT_TRUE(planned.reports[0].reason.empty());
  EXPECT_NE(planned.reports[1].reason.find("backward takes"), std::string::npos);
  EXPECT_FALSE(planned.reports[1].is_saved);
}

TEST(AllReduceTuning, PlansFromASavedMeasurementOfTheSameRun) {
  const Trained first = train("libra", 2, 60, {.drop_last = true});
  AllReduceReport saved = first.reports.at(0);
  const auto with = [&](const AllReduceReport& known) {
    return train("libra", 2, 60, {.drop_last = true, .all_reduces = {.known = known, .far_off = kInfinity}});
  };
  const Trained second = with(saved);
  expect_same(second, first);
  const AllReduceReport& r = second.reports.at(0);
  EXPECT_TRUE(r.is_saved);
  EXPECT_EQ(second.why_unfit, "");
  EXPECT_LE(r.batches, 6);
  ASSERT_EQ(r.devices[0].plan.groups.size(), saved.devices[0].plan.groups.size());
  EXPECT_EQ(r.devices[0].plan.predicted.backward_ms, saved.devices[0].plan.predicted.backward_ms);
  for (const auto& [change, what] :
       std::vector<std::pair<std::function<void(AllReduceReport&)>, std::string>>{
           {[](AllReduceReport& other) { other.key.ranks = 4; }, "4 ranks"},
           {[](AllReduceReport& other) { other.key.threads = 2; }, "2 threads"},
           {[](AllReduceReport& other) { other.key.transport = "mpi"; }, "its transport is mpi, not threads"},
           {[](AllReduceReport& other) { other.key.transport.clear(); }, "an older version wrote it"},
           {[](AllReduceReport& other) {
              other.key.link = {1e-3, 1e9};
            },
            "1GB/s,1000us"},
           {[](AllReduceReport& other) { other.key.collective = CollectiveAlgorithm::ring; },
            "ring, not auto"},
           {[](AllReduceReport& other) { other.key.settings["precision"] = "bf16"; },
            "its precision: bf16, not that of the model"},
           {[](AllReduceReport& other) { other.key.settings["micro-batches"] = "2"; },
            "its micro-batches: 2, not 1"},
           {[](AllReduceReport& other) { other.key.settings["recomputed activations"] = "first"; },
            "its recomputed activations: first, not none"},
           {[](AllReduceReport& other) { other.key.settings.clear(); }, "an older version wrote it"},
           {[](AllReduceReport& other) { other.key.machines = "node1 × 2"; }, "its machines are node1 × 2"},
           {[](AllReduceReport& other) { other.key.batch_size = 5; }, "5 samples per rank, not 4"},
           {[](AllReduceReport& other) { other.key.layers.emplace_back(); }, "2 devices"},
           {[](AllReduceReport& other) { other.key.layers[0][0].gradient_bytes = 8; }, "gradients"},
           {[](AllReduceReport& other) {
              other.devices[0].profile.contention = Contention(std::vector<ThreadRates>{{1, 1, 1, 1}});
              other.devices[0].profile.comm_threads = {1};
            },
            "no rates for 2 threads, only for 1"},
           {[](AllReduceReport& other) {
              other.devices[0].profile.contention = Contention(std::vector<ThreadRates>{{4, 1, 1, 1}});
            },
            "no rates for 1 thread, only for 4"},
           {[](AllReduceReport& other) { other.devices[0].profile.forward_ms = std::nan(""); },
            "its profile (null: not finite): \"forward_ms\" is null"},
           {[](AllReduceReport& other) { other.devices[0].profile.layers[1].compute_ms = -1; },
            "\"layers\": [1]: \"compute_ms\" is -1.0"}}) {
    AllReduceReport other = saved;
    change(other);
    const Trained third = with(other);
    expect_same(third, first);
    EXPECT_FALSE(third.reports.at(0).is_saved);
    expect_words(third.why_unfit, {what});
  }
}

// An all-reduce that computation beside it makes faster; and one that takes longer beside computation than
// after it.
TEST(AllReduceTuning, LeavesWhatBreaksLibrasAssumptionsToOthers) {
  const Trained first = train("libra", 2, 60, {.drop_last = true});
  for (const auto& [rates, why] : std::vector<std::pair<ThreadRates, std::string>>{
           {{2, 0.9, 2, 1}, "with 2 threads an all-reduce is faster beside computation"},
           {{2, 0.5, 0.1, 1},
            "with 2 threads an all-reduce and a computation take longer beside each other"}}) {
    AllReduceReport known = first.reports.at(0);
    const double rate = known.devices[0].profile.contention.at(1).alone;
    ThreadRates two = rates;
    two.overlapped *= rate;
    two.alone *= rate;
    known.devices[0].profile.contention =
        std::vector<ThreadRates>{{1, 0.9, rate, rate}, two, {3, 0.9, rate, rate}};
    known.devices[0].profile.hop_latency_ms = 0;  // or, on a busy machine, it hides the rates
    for (const std::string policy : {"libra", "libra-m"}) {
      const Trained second =
          train(policy, 2, 60, {.drop_last = true, .all_reduces = {.known = known, .far_off = kInfinity}});
      expect_same(second, first);
      const AllReduceReport& r = second.reports.at(0);
      EXPECT_TRUE(r.is_saved);
      ASSERT_GE(r.warnings.size(), 1u);
      expect_words(r.warnings[0], {r.devices[0].plan.policy + " plans the all-reduces",
                                   "the model of " + policy, why, "was the machine busy"});
      EXPECT_TRUE(r.is_doubtful);
      EXPECT_EQ(r.devices[0].predicted.at(0).first, r.devices[0].plan.policy);
      for (const auto& [other, ms] : r.devices[0].predicted)  // the best that LIBRA's model does not plan
        EXPECT_TRUE(other.starts_with("libra") || ms >= r.devices[0].predicted[0].second) << other;
      EXPECT_FALSE(r.devices[0].plan.policy.starts_with("libra"));
    }
  }
}

TEST(AllReduceTuning, MeasuresItsOwnIfTheSavedModelStopsComputation) {
  const Trained first = train("libra", 2, 60, {.drop_last = true});
  AllReduceReport known = first.reports.at(0);
  const ContentionModel::Curve curve{1e6, 0, 0.1, 0.6};
  known.devices[0].profile.contention = ContentionModel{1, 0.4, curve, curve};  // 1 − 0.4·3 < 0
  known.devices[0].profile.comm_threads = {1, 2};
  const Trained second = train("libra", 2, 60, {.drop_last = true, .all_reduces = {.known = known}});
  expect_same(second, first);
  EXPECT_FALSE(second.reports.at(0).is_saved);
  expect_words(second.why_unfit, {"3 threads", "α1 − α2·r"});
}

// The run that measured could not choose 3 threads for the same reason.
TEST(AllReduceTuning, LeavesOutTheThreadsThatTheSavedRunLeftOut) {
  const Trained first = train("libra", 2, 60, {.drop_last = true});
  AllReduceReport known = first.reports.at(0);
  EXPECT_EQ(known.devices[0].profile.comm_threads, (std::vector<int>{1, 2, 3}));
  const ContentionModel::Curve curve{1e6, 0, 0.1, 0.6};
  known.devices[0].profile.contention = ContentionModel{1, 0.4, curve, curve};  // 1 − 0.4·3 < 0
  const Trained second =
      train("libra", 2, 60, {.drop_last = true, .all_reduces = {.known = known, .far_off = kInfinity}});
  expect_same(second, first);
  EXPECT_EQ(second.why_unfit, "");
  const AllReduceReport& r = second.reports.at(0);
  EXPECT_TRUE(r.is_saved);
  expect_words(r.warnings.at(0), {"3 threads cannot be chosen", "α1 − α2·r"});
  for (const AllReduceGroup& g : r.devices[0].plan.groups) EXPECT_LT(g.rates.threads, 3);
}

TEST(AllReduceTuning, MeasuresIfASavedMeasurementIsFarOff) {
  AllReduceReport saved = train("libra", 2, 60, {.drop_last = true}).reports.at(0);
  for (GradientLayer& l : saved.devices[0].profile.layers) l.compute_ms *= 1e4;
  const Trained t = train("libra", 2, 60, {.drop_last = true, .all_reduces = {.known = saved}});
  ASSERT_EQ(t.reports.size(), 1u);
  EXPECT_FALSE(t.reports[0].is_saved);
  EXPECT_NE(t.reports[0].reason.find("saved measurement"), std::string::npos);
}

TEST(AllReduceTuning, WarnsIfItsOwnMeasurementIsFarOff) {
  const AllReduceReport r =
      train("libra", 2, 60, {.drop_last = true, .all_reduces = {.far_off = 1}}).reports.at(0);
  EXPECT_TRUE(r.is_doubtful);
  ASSERT_FALSE(r.warnings.empty());
  expect_words(r.warnings.back(),
               {"backward takes", ", and computing the gradients takes", "was the machine busy"});
}

// A policy's Programs may need more memory than the strategy's own. Then the run goes on without them.
TEST(AllReduceTuning, EndsNoRunForLackOfMemory) {
  TrainerOptions o{.drop_last = true};
  const Trained plain = train("", 2, 60, {.drop_last = true});
  o.strategy.memory_budget = plain.planned_peak;
  const Trained planned = train("se", 2, 60, std::move(o));
  expect_same(planned, plain);
  ASSERT_EQ(planned.reports.size(), 1u);
  EXPECT_TRUE(planned.reports[0].devices[0].plan.groups.empty());
  EXPECT_NE(planned.reports[0].warnings.at(0).find("not planned"), std::string::npos);
  EXPECT_NE(planned.reports[0].warnings[0].find("memory budget"), std::string::npos);
}

TEST(AllReduceTuning, PlansLongRunsByDefault) {
  EXPECT_TRUE(train("auto", 2, kAutoBatches - 1, {.drop_last = true}).reports.empty());
  EXPECT_EQ(train("auto", 2, kAutoBatches, {.drop_last = true, .all_reduces = {.drift = {}}}).reports.size(),
            1u);
  EXPECT_TRUE(train("auto", 1, kAutoBatches, {.drop_last = true}).reports.empty());
}

}  // namespace
}  // namespace tandem::testing
