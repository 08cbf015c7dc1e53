// Every schedule trains like an eager loop on one device that keeps old weights.
#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/pipeline/schedule_file.h>

#include "expect_error.h"
#include "lagged_loop.h"
#include "random_pipelines.h"
#include "seed.h"
#include "tied_network.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr std::int64_t kWidth = 8;

// Uses its weights as they are and, in addition, transposed, squared, and halved.
struct TransformedWeights final : nn::Module {
  using Module::Module;
  nn::Linear linear{*this, "linear", {.in = kWidth, .out = kWidth}};
  Tensor forward(const Tensor& x) override {
    const Tensor w = linear.named_parameters()[0].second->tensor;
    const Tensor half = Tensor::full({w.dtype(), {1}}, 0.5);
    const Tensor v = of_weights(mul(transpose(mul(tanh(w), w), {1, 0}), half));
    return relu(add(linear(x), tandem::linear(x, v)));
  }
};

struct Transforming final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = kWidth}};
  TransformedWeights a{*this, "a"}, b{*this, "b"}, c{*this, "c"};
  nn::Linear head{*this, "head", {.in = kWidth, .out = 5}};
  Tensor forward(const Tensor& x) override { return head(c(b(a(stem(flatten(x)))))); }
};

// All later stages use the outputs of the first stage and of the second.
struct LongSkips final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = kWidth}};
  nn::Linear a{*this, "a", {.in = kWidth, .out = kWidth}}, b{*this, "b", {.in = kWidth, .out = kWidth}},
      c{*this, "c", {.in = kWidth, .out = kWidth}};
  nn::Linear head{*this, "head", {.in = kWidth, .out = 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor s = relu(stem(flatten(x)));
    const Tensor t = add(tanh(a(s)), s);
    const Tensor u = mul(tanh(b(t)), s);
    return head(add(mul(c(u), s), t));
  }
};

struct Dropping final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = kWidth}};
  nn::Dropout first{*this, "first", 0.3};
  nn::Linear a{*this, "a", {.in = kWidth, .out = kWidth}}, b{*this, "b", {.in = kWidth, .out = kWidth}};
  nn::Dropout second{*this, "second", 0.4};
  nn::Linear head{*this, "head", {.in = kWidth, .out = 5}};
  Tensor forward(const Tensor& x) override {
    return head(second(relu(b(relu(a(first(relu(stem(flatten(x))))))))));
  }
};

// After module a the stem's weights are used again, transformed.
struct Tied final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = kWidth}}, a{*this, "a", {.in = kWidth, .out = kWidth}},
      head{*this, "head", {.in = kWidth, .out = 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor s = relu(stem(flatten(x)));
    const Tensor w = of_weights(tanh(stem.named_parameters()[0].second->tensor));
    const Tensor part = for_later_stages(slice(w, 1, 0, kWidth));
    return head(relu(tandem::linear(a(s), part)));
  }
};

struct Network {
  const char* name;
  std::function<std::unique_ptr<nn::Module>()> model;
  std::vector<std::string> cuts;  // for four stages; the middle one is the cut for two
  Shape sample = {2, 2, 3};
};

const std::vector<Network>& networks() {
  static const std::vector<Network> all = {
      {"transformed weights", [] { return std::make_unique<Transforming>(); }, {"a", "b", "c"}},
      {"long skips", [] { return std::make_unique<LongSkips>(); }, {"a", "b", "c"}},
      {"tied", [] { return std::make_unique<TiedNetwork>(); }, {"a", "b", "head"}},
      {"dropout", [] { return std::make_unique<Dropping>(); }, {"a", "b", "head"}},
      {"mlp-residual",  // two of the cuts are beside a skip
       [] {
         return std::make_unique<nn::MlpResidual>(
             nn::MlpOptions{.in = 12, .hidden = kWidth, .classes = 5, .blocks = 3});
       },
       {"block0.second", "block1", "block2.second"}},
      {"convnet",
       [] {
         return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {4, 8, 8}});
       },
       {"block1", "block2", "head"},
       {8, 8, 3}}};
  return all;
}

const Network& mlp_residual() {
  return *std::ranges::find_if(networks(),
                               [](const Network& n) { return n.name == std::string("mlp-residual"); });
}

Job job_of(const Network& network, DType dtype) {
  Job job;
  job.model = network.model;
  job.sample = network.sample;
  job.dtype = dtype;
  job.drains = {10, 1, 3};  // the first is longer than any pipeline here is deep, the others are shorter
  return job;
}

Strategy strategy_of(const Network& network, const std::string& schedule, int stages) {
  Strategy s;
  s.schedule = schedule;
  s.stages = stages;
  if (schedule == "pipedream-2bw") s.microbatches = stages;  // the least that it can
  if (stages == 2) s.cuts = {network.cuts[1]};
  if (stages == 4) s.cuts = network.cuts;
  s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  return s;
}

const std::string kSchedules[] = {"gpipe",         "1f1b",     "pipedream",   "pipedream-vs",
                                  "pipedream-2bw", "dualpipe", "dualpipe-vs", "spectrain"};

void expect_equals_loop(const Network& network, DType dtype, int microbatches) {
  const Job job = job_of(network, dtype);
  for (const std::string& schedule : kSchedules)
    for (int stages : {1, 2, 4}) {
      SCOPED_TRACE(::testing::Message() << network.name << " " << name_of(dtype) << " " << schedule
                                        << " stages " << stages << " microbatches " << microbatches);
      Strategy s = strategy_of(network, schedule, stages);
      s.microbatches = microbatches;
      if (schedule == "pipedream-2bw" && microbatches < stages) continue;  // it cannot
      const Outcome loop = lagged_loop(job, s), out = train(job, s);
      expect_same_training(loop, out);
    }
}

// A case for each network, so that a sanitizer, which takes long, can run some.
struct LaggedCase {
  const Network* network;
  DType dtype;
  int microbatches;
};
std::vector<LaggedCase> lagged_cases() {
  std::vector<LaggedCase> cases;
  for (const Network& network : networks())
    for (const auto& [dtype, microbatches] :
         {std::pair(DType::f32, 1), {DType::f32, 2}, {DType::f64, 1}, {DType::f64, 4}, {DType::f32, 8}})
      cases.push_back({&network, dtype, microbatches});
  return cases;
}
std::string name_of(const ::testing::TestParamInfo<LaggedCase>& info) {
  const LaggedCase& c = info.param;
  std::string name = fmt::format("{}_{}_{}", c.network->name, name_of(c.dtype), c.microbatches);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ' ' || letter == '-'; }, '_');
  return name;
}

class LaggedCases : public ::testing::TestWithParam<LaggedCase> {};
TEST_P(LaggedCases, EveryScheduleEqualsTheLoopThatKeepsOldWeightsBitwise) {
  expect_equals_loop(*GetParam().network, GetParam().dtype, GetParam().microbatches);
}
INSTANTIATE_TEST_SUITE_P(Lagged, LaggedCases, ::testing::ValuesIn(lagged_cases()),
                         [](const auto& info) { return name_of(info); });

// Schedules that no table has: tasks, updates, and barriers in any order that is possible.
TEST(Lagged, RandomSchedulesEqualTheLoopBitwise) {
  auto rng = generator("random schedules that train");
  for (int i = 0; i < 40; ++i) {
    const Network& network = networks()[static_cast<std::size_t>(draw_int(rng, 0, 4))];
    const int stages = 1 << draw_int(rng, 0, 2), microbatches = 1 << draw_int(rng, 0, 2);
    Strategy s = strategy_of(network, "plain", stages);
    s = with_schedule(std::move(s), random_pipeline(rng, stages, microbatches));
    SCOPED_TRACE(::testing::Message() << i << ": " << network.name << " " << to_json(*s.own_schedule));
    const Job job = job_of(network, DType::f32);
    expect_same_training(lagged_loop(job, s), train(job, s));
  }
}

TEST(Lagged, TransformedWeightsReachAnotherStageAsAnActivation) {
  const Network tied{"transformed and tied", [] { return std::make_unique<Tied>(); }, {"stem", "a", "head"}};
  const Job job = job_of(tied, DType::f64);
  for (const std::string& schedule : kSchedules) {
    SCOPED_TRACE(schedule);
    const Strategy s = strategy_of(tied, schedule, 2);
    expect_same_results(lagged_loop(job, s), train(job, s));
  }
}

// Each target, with optimizers that predict differently, each with its number of micro-batches, rates that
// change, and groups with rates and weight decays of their own.
TEST(Lagged, PredictionsEqualTheLoopsBitwise) {
  const std::vector<std::pair<Optimizer, int>> optimizers = {
      {SgdOptions{.momentum = 0.9}, 1},
      {SgdOptions{.momentum = 0.8, .weight_decay = 1e-2, .nesterov = true}, 2},
      {SgdOptions{.momentum = 0.9, .weight_decay = 1e-2, .rule = SgdRule::ema}, 4},
      {SgdOptions{.momentum = 0.9, .weight_decay = 1e-2, .rule = SgdRule::raw_ema}, 8},
      {AdamOptions{.beta2 = 0.99, .weight_decay = 1e-2}, 1},
      {AdamOptions{.beta2 = 0.99, .weight_decay = 1e-2, .decoupled = true}, 4},
      {AdamOptions{.beta2 = 0.99, .weight_decay = 0.1, .decoupled = true}, 1}};
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Network& network : networks())
      for (const SpecTrainTarget target :
           {SpecTrainTarget::paper, SpecTrainTarget::effective, SpecTrainTarget::serial})
        for (std::size_t o = 0; o < optimizers.size(); ++o)
          for (const int stages : dtype == DType::f32 ? std::vector{1, 2, 4} : std::vector{2}) {
            SCOPED_TRACE(::testing::Message()
                         << network.name << " " << name_of(dtype) << " target " << static_cast<int>(target)
                         << " optimizer " << o << " stages " << stages);
            Job job = job_of(network, dtype);
            job.rates = {0.01};
            job.rate_factor = [](std::int64_t batch) { return 1.0 / (1 + static_cast<double>(batch % 5)); };
            Strategy s = strategy_of(network, "spectrain", stages);
            s.spectrain_target = target;
            std::tie(s.optimizer, s.microbatches) = optimizers[o];
            s.parameter_groups = {{.parameters = {"*.bias"}, .lr_scale = 3, .weight_decay = 0.2}};
            const Outcome loop = lagged_loop(job, s), out = train(job, s);
            expect_same_training(loop, out);
          }
}

TEST(Lagged, PredictionsOfSeveralModelsEqualTheLoopsBitwise) {
  for (const Optimizer& optimizer : std::vector<Optimizer>{
           SgdOptions{.momentum = 0.9}, AdamOptions{.weight_decay = 0.1, .decoupled = true}}) {
    Job job = job_of(mlp_residual(), DType::f32);
    job.seeds = {1, 2, 3};
    job.rates = {0.01, 0.02, 0.005};
    Strategy s = strategy_of(mlp_residual(), "spectrain", 4);
    s.models = 3;
    s.optimizer = optimizer;
    expect_same_training(lagged_loop(job, s), train(job, s));
  }
}

// Each stage's gradients are scaled by themselves, also where stages update at different times.
TEST(Lagged, ClippingByStageEqualsTheLoopToRounding) {
  for (const std::string& schedule : kSchedules)
    for (const int stages : {1, 2, 4}) {
      SCOPED_TRACE(::testing::Message() << schedule << " stages " << stages);
      const Job job = job_of(mlp_residual(), DType::f64);
      Strategy s = strategy_of(mlp_residual(), schedule, stages);
      const Outcome plain = train(job, s);
      s.gradients = {.clip_norm = 0.2, .clip_scope = ClipScope::stage};
      const Outcome clipped = train(job, s);
      EXPECT_LE(largest_difference(lagged_loop(job, s), clipped), 1e-13);
      EXPECT_GT(largest_difference(plain, clipped), 1e-4);
    }
}

// 2BW updates all stages in one unit, so it can clip their gradients together. But it scales the next loss
// before.
TEST(Lagged, ClippingTheModelUnder2bwEqualsTheLoopToRounding) {
  for (const int stages : {1, 2, 4}) {
    SCOPED_TRACE(stages);
    const Job job = job_of(networks()[3], DType::f64);
    Strategy s = strategy_of(networks()[3], "pipedream-2bw", stages);
    const Outcome plain = train(job, s);
    s.gradients = {.clip_norm = 0.2};
    const Outcome clipped = train(job, s);
    EXPECT_LE(largest_difference(lagged_loop(job, s), clipped), 1e-13);
    EXPECT_GT(largest_difference(plain, clipped), 1e-4);
    s.microbatches = 4;
    s.gradients = {.loss_scale = LossScale{}};
    if (stages > 1) expect_error([&] { program_of(job, s); }, {"loss scaling", "1f1b"});
  }
}

TEST(Lagged, PredictionsNeedAMomentum) {
  Strategy s = strategy_of(networks()[0], "spectrain", 2);
  s.optimizer = SgdOptions{};
  expect_error([&] { train(job_of(networks()[0], DType::f32), s); }, {"momentum", "is 0", "dualpipe"});
}

// Stage c of 2N lies on device c mod N.
TEST(Lagged, InterleavedStagesEqualTheLoopBitwise) {
  for (const Network& network : networks())
    for (const int chunks : {2, 4})
      for (const int microbatches : {2, 4, 8}) {
        SCOPED_TRACE(::testing::Message()
                     << network.name << " chunks " << chunks << " microbatches " << microbatches);
        const Job job = job_of(network, DType::f32);
        Strategy s = strategy_of(network, "interleaved", 4);
        s.chunks = chunks;
        s.microbatches = microbatches;
        ASSERT_EQ(4 / chunks, s.ranks());
        const Outcome loop = lagged_loop(job, s), out = train(job, s);
        expect_same_training(loop, out);
        s.lockstep = true;
        expect_same_training(loop, train(job, s));
        s.replicas = microbatches == 8 ? 1 : 2;
        s.lockstep = false;
        Strategy in_turn = s;
        in_turn.schedule = "plain";
        in_turn.chunks = 1;
        if (network.name != std::string("tied")) {  // its bits depend on the cuts
          in_turn.stages = 1;
          in_turn.cuts.clear();
        }
        expect_same_training(train(job, in_turn), train(job, s));
      }
}

// The batches are large enough for kernels to use their team.
TEST(Lagged, TwoThreadsEqualTheLoopOnTwoThreadsBitwise) {
  const Network large[] = {
      {"mlp-residual",
       [] {
         return std::make_unique<nn::MlpResidual>(
             nn::MlpOptions{.in = 192, .hidden = 256, .classes = 5, .blocks = 2});
       },
       {"block0.second", "block1", "block1.second"},
       {8, 8, 3}},
      {"convnet",
       [] {
         return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {16, 16}});
       },
       {"", "block1", ""},
       {8, 8, 3}}};
  for (const Network& network : large)
    for (const std::string& schedule : kSchedules)
      for (int stages : {1, 2, 4}) {
        if (stages == 4 && network.cuts[0].empty()) continue;
        SCOPED_TRACE(::testing::Message() << network.name << " " << schedule << " stages " << stages);
        Job job = job_of(network, DType::f32);
        job.batch_size = 256;
        job.drains = {4};
        job.rate_factor = [](std::int64_t batch) { return 1.0 / (1 + static_cast<double>(batch % 3)); };
        Strategy s = strategy_of(network, schedule, stages);
        s.threads = 2;
        s.parameter_groups = {{.parameters = {"*.bias"}, .lr_scale = 3}};
        if (stages > 1) s.optimizer = AdamOptions{.weight_decay = 1e-2, .decoupled = true};
        const Outcome loop = lagged_loop(job, s), out = train(job, s), again = train(job, s);
        expect_same_results(loop, out);
        expect_same_results(out, again);
      }
}

// The loop runs on the fast kernels, which may add in another order.
TEST(Lagged, ReferenceKernelsEqualTheLoopToRounding) {
  for (const Network& network : networks())
    for (const std::string& schedule : kSchedules) {
      SCOPED_TRACE(::testing::Message() << network.name << " " << schedule);
      const Job job = job_of(network, DType::f64);
      Strategy s = strategy_of(network, schedule, 4);
      s.kernels = &reference_kernels();
      const Outcome loop = lagged_loop(job, s), out = train(job, s);
      ASSERT_EQ(loop.losses.size(), out.losses.size());
      for (std::size_t b = 0; b < loop.losses.size(); ++b)
        EXPECT_NEAR(loop.losses[b][0], out.losses[b][0], 1e-12 * std::abs(loop.losses[b][0]));
    }
}

// Otherwise the comparisons above would prove little.
TEST(Lagged, SchedulesThatReadOtherWeightsGiveOtherLosses) {
  for (const Network& network : networks()) {
    SCOPED_TRACE(network.name);
    const Job job = job_of(network, DType::f64);
    const auto losses = [&](const std::string& schedule, int stages) {
      return lagged_loop(job, strategy_of(network, schedule, stages)).losses;
    };
    EXPECT_NE(losses("plain", 1), losses("pipedream", 2));
    EXPECT_NE(losses("pipedream", 2), losses("pipedream", 4));
    EXPECT_NE(losses("pipedream", 4), losses("dualpipe", 4));
    EXPECT_NE(losses("pipedream", 4), losses("pipedream-vs", 4));
    EXPECT_NE(losses("dualpipe", 4), losses("dualpipe-vs", 4));
    EXPECT_NE(losses("dualpipe", 4), losses("spectrain", 4));
    std::set<std::vector<std::vector<double>>> targets;
    for (const SpecTrainTarget target :
         {SpecTrainTarget::paper, SpecTrainTarget::effective, SpecTrainTarget::serial}) {
      Strategy s = strategy_of(network, "spectrain", 4);
      s.spectrain_target = target;
      targets.insert(lagged_loop(job, s).losses);
    }
    EXPECT_EQ(3u, targets.size());
    EXPECT_EQ(losses("plain", 1), losses("gpipe", 4));
  }
}

}  // namespace
}  // namespace tandem::testing
