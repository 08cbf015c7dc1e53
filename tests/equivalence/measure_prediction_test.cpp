// What Strategy::measure_prediction delivers equals what a loop on one device finds, and changes no bit.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "lagged_loop.h"

namespace tandem::testing {
using namespace engine;
namespace {

Job job_of(DType dtype) {
  Job job = small_residual_job(dtype);
  job.drains = {9, 1, 4};
  job.rates = {0.01};
  job.rate_factor = [](std::int64_t batch) { return 1.0 / (1 + static_cast<double>(batch % 5)); };
  return job;
}

Strategy strategy_of(const std::string& schedule, int stages) {
  Strategy s;
  s.schedule = schedule;
  s.stages = stages;
  if (stages == 2) s.cuts = {"block2"};
  if (stages == 4) s.cuts = {"block1", "block2", "block3"};
  if (schedule == "pipedream-2bw") s.microbatches = stages;
  s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  s.parameter_groups = {{.parameters = {"*.bias"}, .lr_scale = 3}};
  s.measure_prediction = {1, 3, 2};
  return s;
}

void expect_near(const std::vector<double>& expected, const std::vector<double>& is, double tolerance) {
  ASSERT_EQ(expected.size(), is.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], is[i], tolerance * expected[i]);
}

// Both have the numbers of the same stages, updates, and models, and there are some.
void expect_same_errors(const Outcome& loop, const Outcome& out, double tolerance) {
  ASSERT_EQ(loop.predictions.size(), out.predictions.size());
  std::size_t numbers = 0;
  for (std::size_t b = 0; b < loop.predictions.size(); ++b) {
    ASSERT_EQ(loop.predictions[b].size(), out.predictions[b].size()) << "batch " << b;
    for (std::size_t e = 0; e < loop.predictions[b].size(); ++e) {
      const PredictionError &expected = loop.predictions[b][e], &is = out.predictions[b][e];
      SCOPED_TRACE(::testing::Message()
                   << "batch " << b << " stage " << expected.stage << " updates " << expected.updates);
      EXPECT_EQ(expected.stage, is.stage);
      EXPECT_EQ(expected.updates, is.updates);
      EXPECT_GT(is.stale.at(0), 0);
      EXPECT_NE(is.stale.at(0), is.predicted.at(0));
      expect_near(expected.predicted, is.predicted, tolerance);
      expect_near(expected.stale, is.stale, tolerance);
      ++numbers;
    }
  }
  EXPECT_GT(numbers, 0u);
}

// Trains with and without measuring.
Outcome measured(const Job& job, Strategy s) {
  Outcome out = train(job, s);
  s.measure_prediction.clear();
  const Outcome unmeasured = train(job, s);
  expect_same_results(unmeasured, out);
  EXPECT_TRUE(unmeasured.predictions.empty());
  return out;
}

TEST(MeasurePrediction, EverySchedulesNumbersEqualTheLoops) {
  for (const std::string schedule : {"gpipe", "1f1b", "pipedream", "pipedream-vs", "pipedream-2bw",
                                     "dualpipe", "dualpipe-vs", "spectrain"})
    for (const int stages : {1, 2, 4})
      for (const bool lockstep : {false, true}) {
        SCOPED_TRACE(::testing::Message() << schedule << " stages " << stages << " lockstep " << lockstep);
        const Job job = job_of(DType::f64);
        Strategy s = strategy_of(schedule, stages);
        s.lockstep = lockstep;
        expect_same_errors(lagged_loop(job, s), measured(job, s), 1e-12);
      }
}

TEST(MeasurePrediction, EveryOptimizersNumbersEqualTheLoops) {
  for (const Optimizer& optimizer :
       std::vector<Optimizer>{SgdOptions{.momentum = 0.9, .rule = SgdRule::ema},
                              SgdOptions{.momentum = 0.9, .rule = SgdRule::raw_ema},
                              SgdOptions{.momentum = 0.8, .weight_decay = 1e-2, .nesterov = true},
                              AdamOptions{.beta2 = 0.99, .weight_decay = 1e-2},
                              AdamOptions{.beta2 = 0.99, .weight_decay = 0.1, .decoupled = true}})
    for (const std::string schedule : {"plain", "spectrain"}) {
      SCOPED_TRACE(::testing::Message() << "optimizer " << optimizer.index() << " " << schedule);
      const Job job = job_of(DType::f64);
      Strategy s = strategy_of(schedule, schedule == "plain" ? 1 : 2);
      s.optimizer = optimizer;
      expect_same_errors(lagged_loop(job, s), measured(job, s), 1e-12);
    }
}

TEST(MeasurePrediction, ModelsMicrobatchesAndChunksHaveTheLoopsNumbers) {
  for (const std::string schedule : {"interleaved", "spectrain"}) {
    SCOPED_TRACE(schedule);
    Job job = job_of(DType::f64);
    job.seeds = {1, 2, 3};
    job.rates = {0.01, 0.02, 0.005};
    Strategy s = strategy_of(schedule, 4);
    s.models = 3;
    s.microbatches = 4;
    s.chunks = schedule == "interleaved" ? 2 : 1;
    const Outcome out = measured(job, s);
    ASSERT_EQ(3u, out.predictions.back().at(0).stale.size());
    expect_same_errors(lagged_loop(job, s), out, 1e-12);
  }
}

// Replicas have the same weights; their samples are added in another order than the loop's.
TEST(MeasurePrediction, RanksAndMixedPrecisionHaveNumbersOfTheirOwnTraining) {
  const Job job = job_of(DType::f64);
  Strategy s = strategy_of("spectrain", 2);
  s.replicas = 2;
  expect_same_errors(lagged_loop(job, s), measured(job, s), 1e-9);
  Strategy half = strategy_of("spectrain", 2);
  half.amp = DType::bf16;
  expect_same_errors(lagged_loop(job_of(DType::f32), half), measured(job_of(DType::f32), half), 0.1);
}

// Without the pass, no node of it exists: a measured run needs more memory, an unmeasured one does not.
TEST(MeasurePrediction, TheWeightsAndTheMomentumKeepOneVersionPerUpdate) {
  const auto slots = [](const std::string& schedule, std::vector<int> updates) {
    Strategy s = strategy_of(schedule, 1);
    s.measure_prediction = std::move(updates);
    int most = 0;
    for (const MemoryBlock& b : program_of(job_of(DType::f32), s).blocks)
      if (b.arena == Arena::state) most = std::max(most, b.slots);
    return most;
  };
  EXPECT_EQ(1, slots("plain", {}));
  EXPECT_EQ(2, slots("plain", {1}));
  EXPECT_EQ(4, slots("plain", {1, 3}));
}

TEST(MeasurePrediction, NeedsAMomentumAndUpdates) {
  Strategy s = strategy_of("plain", 1);
  s.optimizer = SgdOptions{};
  expect_error([&] { program_of(job_of(DType::f32), s); }, {"momentum", "is 0", "measure none"});
  s = strategy_of("plain", 1);
  s.measure_prediction = {0};
  expect_error([&] { program_of(job_of(DType::f32), s); }, {"0 updates to predict"});
}

}  // namespace
}  // namespace tandem::testing
