// Which batch a Recovery leaves out, and how often it repeats training to find it. The run consists only of
// numbers.
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/train/recovery.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Batches 0 … total-1. Some of them spoil the weights; losses are not finite from the next batch on.
struct FakeRun : Recoverable {
  FakeRun(std::int64_t total, std::set<std::int64_t> spoiling, int most_rollbacks = 3,
          OnNonFinite rule = OnNonFinite::rollback)
      : total(total),
        spoiling(std::move(spoiling)),
        skips(rule == OnNonFinite::skip),
        recovery(rule, most_rollbacks, *this) {
    recovery.keep();
  }

  RunPoint point() const override { return {progress, {}}; }
  void go_back(const RunPoint& point) override {
    progress = point.progress;
    finite = finite_at_point;
    ++went_back;
  }
  bool go_on(std::int64_t end) override {
    while (progress.batch < end) {
      const std::int64_t left_out = recovery.next_left_out(progress.batch, end);
      for (; progress.batch < left_out; ++progress.batch) {
        if (went_back >= hears_after && progress.batch >= ends_at) return false;
        train();
      }
      if (left_out < end) ++progress.batch;
    }
    return true;
  }
  void train() {
    if (!finite) recovery.loss_not_finite(progress.batch);
    if (spoiling.contains(progress.batch)) {
      finite = skips;
      if (skips) recovery.update_skipped(progress.batch);
    }
    if (!recovery.ignores_results()) trained.push_back(progress.batch);
  }
  bool is_finite() const override { return finite; }
  std::string explain(std::int64_t batch) override {
    EXPECT_EQ(batch, skips ? batch : progress.batch) << "the run must be at this batch";
    return "here";
  }
  void report(const NonFiniteBatch& batch) const override { told.push_back(batch); }
  std::int64_t share(std::int64_t value, int) const override { return value; }
  int main_rank() const override { return 0; }

  void fit() {
    do go_on(total);
    while (recovery.act(progress.batch));
  }

  const std::int64_t total;
  const std::set<std::int64_t> spoiling;
  const bool skips;
  TrainProgress progress{};
  bool finite = true, finite_at_point = true;
  int went_back = 0;
  int hears_after = 0;  // how often it goes back before it hears where it ends
  std::int64_t ends_at = std::numeric_limits<std::int64_t>::max();
  mutable std::vector<NonFiniteBatch> told{};
  std::vector<std::int64_t> trained{};
  Recovery recovery;
};

TEST(Recovery, FindsEveryBadBatchByHalving) {
  constexpr std::int64_t kTotal = 100;
  for (std::int64_t culprit = 0; culprit < kTotal; ++culprit) {
    FakeRun run(kTotal, {culprit});
    run.fit();
    ASSERT_EQ(1u, run.told.size());
    EXPECT_EQ(culprit, run.told[0].batch);
    EXPECT_EQ(0, run.told[0].back_to);
    EXPECT_EQ("here", run.told[0].where);
    EXPECT_TRUE(run.finite);
    EXPECT_EQ(1, run.progress.rollbacks);
    EXPECT_LE(run.went_back, std::ceil(std::log2(kTotal)) + 3);
  }
}

TEST(Recovery, LeavesOutBadBatchesOneByOne) {
  FakeRun run(20, {3, 4, 19});
  run.fit();
  ASSERT_EQ(3u, run.told.size());
  EXPECT_EQ(3, run.told[0].batch);
  EXPECT_EQ(4, run.told[1].batch);
  EXPECT_EQ(19, run.told[2].batch);
  EXPECT_EQ(3, run.progress.rollbacks);
  const std::vector<std::int64_t> last(run.trained.end() - 17, run.trained.end());
  for (const std::int64_t batch : last) EXPECT_FALSE(run.spoiling.contains(batch));
  EXPECT_EQ(18, last.back());
}

TEST(Recovery, GivesUpAfterTheGivenNumberOfRollbacks) {
  FakeRun run(20, {3, 4, 19}, /*most_rollbacks=*/2);
  expect_error([&] { run.fit(); }, {"step 19 is not finite", "after 2 rollbacks", "here"});
}

TEST(Recovery, GoesBackToFiniteWeightsOnly) {
  FakeRun run(20, {3});
  run.finite_at_point = false;
  expect_error([&] { run.fit(); }, {"the state that the run would go back to is not finite"});
}

// Results of a run that failed do not affect the next run.
TEST(Recovery, StartsOverAtAKeptPoint) {
  FakeRun run(20, {3});
  run.finite_at_point = false;
  expect_error([&] { run.fit(); }, {"not finite"});
  EXPECT_TRUE(run.recovery.ignores_results());
  run.finite = true;
  run.recovery.keep();
  EXPECT_FALSE(run.recovery.ignores_results());
  EXPECT_FALSE(run.recovery.act(20));
}

// A run that ends before the bad batch leaves none out. Its callbacks learn that it went back to batch 0.
TEST(Recovery, LeavesNoWrongBatchOutIfTheRunEndsDuringTheSearch) {
  for (const auto& [end, is_found] : {std::pair{9, false}, std::pair{40, false}, std::pair{70, true}}) {
    FakeRun run(100, {60});
    run.hears_after = 3, run.ends_at = end;
    run.fit();
    EXPECT_EQ(end, run.progress.batch);
    EXPECT_TRUE(run.is_finite());
    ASSERT_EQ(1, std::ssize(run.told)) << end;
    EXPECT_EQ(is_found ? 60 : 61, run.told[0].batch);
    EXPECT_EQ(is_found, run.told[0].is_left_out);
    EXPECT_EQ(0, run.told[0].back_to);
    EXPECT_EQ(is_found, run.recovery.next_left_out(0, 100) == 60) << end;
  }
}

TEST(Recovery, ReportsOnlyTheFirstSkippedBatch) {
  FakeRun run(20, {7, 9, 30}, 3, OnNonFinite::skip);
  run.fit();
  ASSERT_EQ(1u, run.told.size());
  EXPECT_EQ(7, run.told[0].batch);
  EXPECT_EQ(-1, run.told[0].back_to);
  EXPECT_EQ(0, run.went_back);
  EXPECT_EQ(20u, run.trained.size());
}

}  // namespace
}  // namespace tandem::testing
