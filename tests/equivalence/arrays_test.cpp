// Arrays of models: however a partition divides models, and however the arrays share the device, no bit
// changes.
#include <numeric>

#include <gtest/gtest.h>

#include <tandem/nn/layers.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/array_partition.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

Job of_models(const Job& one, int models) {
  Job job = with_models(one, models);
  job.drains = {3, 1, 2};
  return job;
}

struct NamedJob {
  const char* name;
  Job job;
};
std::vector<NamedJob> jobs() {
  return {
      {"residual mlp", small_residual_job()}, {"convnet", convolutional_job()}, {"dropout", dropout_job()}};
}

TEST(Arrays, PartitionsAndOrdersChangeNoBit) {
  for (const NamedJob& j : jobs())
    for (const std::vector<int>& partition :
         std::vector<std::vector<int>>{{1, 1}, {2, 1}, {1, 2}, {1, 1, 1}, {2, 2, 1}}) {
      const int models = std::accumulate(partition.begin(), partition.end(), 0);
      const Job job = of_models(j.job, models);
      const Outcome together = train(job, plain());
      for (const int lanes : {0, 1, 2})  // 0: a ring
        for (const bool clips : {false, true}) {
          SCOPED_TRACE(::testing::Message() << j.name << ", " << partition.size() << " arrays of " << models
                                            << (lanes == 0   ? ", ring"
                                                : lanes == 1 ? ", in turn"
                                                             : ", side by side")
                                            << (clips ? ", clips" : ""));
          Strategy s = plain();
          if (clips) s.gradients = {.clip_norm = 0.1, .skip_non_finite = true};
          const Outcome expected = clips ? train(job, s) : together;
          s.arrays = partition;
          s.array_order = lanes == 0 ? ArrayOrder::ring : ArrayOrder::in_turn;
          s.array_lanes = std::max(1, lanes);
          const Outcome out = train(job, s);
          expect_same_training(expected, out);
        }
    }
}

// One weight version, and one set of activations of the first array from one unit to the next.
TEST(Arrays, APairHasOneWeightVersion) {
  Strategy s = plain();
  s.models = 2;
  s.arrays = {1, 1};
  const Program p = program_of(of_models(convolutional_job(), 2), s);
  EXPECT_EQ(1, p.max_lag);
  for (const MemoryBlock& b : p.blocks) EXPECT_EQ(1, b.slots) << b.name;
}

// By hand. Those of 8 are in the paper.
TEST(Arrays, PartitionsAreThoseOfThePaper) {
  const std::vector<std::vector<std::string>> by_models{
      {"(1)"},
      {"(1, 1)", "(2)"},
      {"(2, 1)", "(3)"},
      {"(2, 2)", "(1, 1) (1, 1)", "(4)"},
      {"(3, 2)", "(1, 1) (2, 1)", "(5)"},
      {"(3, 3)", "(2, 2) (1, 1)", "(1, 1) (1, 1) (1, 1)", "(6)"},
      {"(4, 3)", "(2, 2) (2, 1)", "(1, 1) (1, 1) (2, 1)", "(7)"},
      {"(4, 4)", "(3, 3) (1, 1)", "(2, 2) (2, 2)", "(1, 1) (1, 1) (1, 1) (1, 1)", "(8)"},
      {"(5, 4)", "(3, 3) (2, 1)", "(2, 2) (3, 2)", "(1, 1) (1, 1) (1, 1) (2, 1)", "(9)"},
      {"(5, 5)", "(4, 4) (1, 1)", "(3, 3) (2, 2)", "(2, 2) (2, 2) (1, 1)",
       "(1, 1) (1, 1) (1, 1) (1, 1) (1, 1)", "(10)"},
      {"(6, 5)", "(4, 4) (2, 1)", "(3, 3) (3, 2)", "(2, 2) (2, 2) (2, 1)",
       "(1, 1) (1, 1) (1, 1) (1, 1) (2, 1)", "(11)"},
      {"(6, 6)", "(5, 5) (1, 1)", "(4, 4) (2, 2)", "(3, 3) (3, 3)", "(2, 2) (2, 2) (2, 2)",
       "(1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1)", "(12)"},
      {"(7, 6)", "(5, 5) (2, 1)", "(4, 4) (3, 2)", "(3, 3) (4, 3)", "(2, 2) (2, 2) (3, 2)",
       "(1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (2, 1)", "(13)"},
      {"(7, 7)", "(6, 6) (1, 1)", "(5, 5) (2, 2)", "(4, 4) (3, 3)", "(3, 3) (3, 3) (1, 1)",
       "(2, 2) (2, 2) (2, 2) (1, 1)", "(1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1)", "(14)"},
      {"(8, 7)", "(6, 6) (2, 1)", "(5, 5) (3, 2)", "(4, 4) (4, 3)", "(3, 3) (3, 3) (2, 1)",
       "(2, 2) (2, 2) (2, 2) (2, 1)", "(1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (2, 1)", "(15)"},
      {"(8, 8)", "(7, 7) (1, 1)", "(6, 6) (2, 2)", "(5, 5) (3, 3)", "(4, 4) (4, 4)", "(3, 3) (3, 3) (2, 2)",
       "(2, 2) (2, 2) (2, 2) (2, 2)", "(1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1) (1, 1)", "(16)"}};
  for (int models = 1; models <= 16; ++models) {
    std::vector<std::string> texts;
    for (const ArrayPartition& p : partitions_of(models)) texts.push_back(to_string(p));
    EXPECT_EQ(by_models[static_cast<std::size_t>(models) - 1], texts) << models << " models";
  }
}

// They train one after the other, by epoch.
TEST(Arrays, AlonePartitionsAreByHand) {
  const std::vector<std::vector<std::string>> by_models{
      {}, {"(1) (1)"}, {"(2) (1)", "(1) (1) (1)"}, {"(2) (2)", "(1) (1) (1) (1)"}};
  for (int models = 1; models <= 4; ++models) {
    std::vector<std::string> texts;
    for (const ArrayPartition& p : partitions_alone(models)) texts.push_back(to_string(p));
    EXPECT_EQ(by_models[static_cast<std::size_t>(models) - 1], texts) << models << " models";
  }
}

// HFTA's arrays take turns: the largest that fit. They compute the same bits as μ-TWO's pairs.
TEST(Arrays, HftaTakesTheLargestArraysThatFit) {
  Strategy s = plain();
  s.models = 5;
  s.memory_plan = "hfta";
  const Graph forward = trace_job(convolutional_job(), 8);
  const auto all = judge_partitions(forward, s);
  ASSERT_EQ(5U, all.size());
  EXPECT_EQ("(5)", to_string(all[0].partition));
  EXPECT_EQ("(3, 2)", to_string(all[2].partition));
  EXPECT_EQ("(1, 1, 1, 1, 1)", to_string(all[4].partition));
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i].peak_bytes, all[i - 1].peak_bytes);
  s.memory_budget = all[2].peak_bytes;
  const auto limited = judge_partitions(forward, s);
  EXPECT_NE("", limited[0].why_not);
  EXPECT_EQ("", limited[2].why_not);
  Strategy turn = of_turn(s, all[2].partition[0]);
  const Job job = of_models(convolutional_job(), 5);
  expect_same_training(train(job, plain()), train(job, turn));
}

// The first two models keep no velocity.
TEST(Arrays, JudgesEachTurnWithItsOwnModels) {
  Strategy s = plain();
  s.models = 4;
  s.memory_plan = "mu-two+";
  const ModelOptions still{.optimizer = SgdOptions{}}, moving{.optimizer = SgdOptions{.momentum = 0.9}};
  s.each = {still, still, moving, moving};
  s.optimizer = still.optimizer;
  const Graph forward = trace_job(convolutional_job(), 8);
  const std::int64_t first = planned_peak(build(forward, of_turn(s, {1, 1}))),
                     last = planned_peak(build(forward, of_turn(s, {1, 1}, 2)));
  EXPECT_LT(first, last);
  const auto all = judge_partitions(forward, s);
  ASSERT_EQ("(1, 1) (1, 1)", to_string(all[1].partition));
  EXPECT_EQ(last, all[1].peak_bytes);
}

TEST(Arrays, JudgesPartitionsByTimeAndBudget) {
  Strategy s = plain();
  s.models = 4;
  s.memory_plan = "mu-two+";
  const Graph forward = trace_job(convolutional_job(), 8);
  const auto free = judge_partitions(forward, s);
  ASSERT_EQ(5U, free.size());
  EXPECT_EQ("(2) (2)", to_string(free[3].partition));
  EXPECT_EQ("(1) (1) (1) (1)", to_string(free[4].partition));
  for (const PartitionVerdict& v : free) {
    EXPECT_EQ("", v.why_not);
    EXPECT_GE(v.ms, shortest(free).ms);
    EXPECT_GT(v.ms, 0);
  }
  s.memory_budget = free[1].peak_bytes;  // of two pairs, which take turns
  const auto limited = judge_partitions(forward, s);
  EXPECT_EQ("", limited[1].why_not);
  for (const PartitionVerdict& v : limited) EXPECT_LE(v.peak_bytes, s.memory_budget);
  s.memory_plan.clear();  // a budget alone is enough for a pair to be planned
  s.memory_budget = free[0].peak_bytes * 9 / 10;
  EXPECT_EQ("", judge_partitions(forward, s)[0].why_not);
  s.memory_budget = 1000;
  std::int64_t smallest = 0;
  try {
    shortest(judge_partitions(forward, s));
  } catch (const BudgetTooSmall& e) {
    smallest = e.smallest;
    EXPECT_NE(std::string::npos, std::string(e.what()).find("too small for each of the 5 partitions"))
        << e.what();
  }
  s.memory_budget = smallest;
  EXPECT_EQ("", shortest(judge_partitions(forward, s)).why_not) << "the budget that it named works";
  s.memory_plan = "mu-two+";
  s.stages = 2;  // a plan is of a schedule that flushes
  s.schedule = "dualpipe";
  expect_error([&] { shortest(judge_partitions(forward, s)); }, {"no partition of the models is possible"});
}

TEST(Arrays, NeedOneStageAndOneMicrobatch) {
  Strategy s = plain();
  s.models = 2;
  s.arrays = {1, 1};
  s.microbatches = 2;
  const Job job = of_models(convolutional_job(), 2);
  expect_error([&] { program_of(job, s); }, {"one stage and one micro-batch"});
  s.microbatches = 1;
  s.stages = 2;
  for (const char* schedule : {"gpipe", "1f1b", "dualpipe"}) {
    s.schedule = schedule;
    for (const ArrayOrder order : {ArrayOrder::ring, ArrayOrder::in_turn}) {
      s.array_order = order;
      expect_error([&] { program_of(job, s); }, {"one stage and one micro-batch"});
    }
  }
  s = plain();
  s.models = 2;
  s.arrays = {1, 2};
  expect_error([&] { program_of(job, s); }, {"the arrays have 3 models together, the strategy has 2"});
}

}  // namespace
}  // namespace tandem::testing
