// Which batch a Recovery leaves out, and how often it has the run train again to find it: of a run that is
// nothing but numbers.
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/train/recovery.h>

#include "expect_error.h"

namespace tandem::test {
namespace {

// Batches 0 … total-1, of which some spoil the weights; losses are not finite from the batch after on.
struct FakeRun {
  FakeRun(std::int64_t total, std::set<std::int64_t> spoiling, int most_rollbacks = 3,
          OnNonFinite rule = OnNonFinite::rollback)
      : total(total),
        spoiling(std::move(spoiling)),
        recovery(rule, most_rollbacks,
                 {.point =
                      [this] {
                        return RunPoint{progress, {}};
                      },
                  .go_back =
                      [this](const RunPoint& point) {
                        progress = point.progress;
                        finite = finite_at_point;
                        ++went_back;
                      },
                  .go_on = [this](std::int64_t end) { train(end); },
                  .is_finite = [this] { return finite; },
                  .explain =
                      [this](std::int64_t batch) {
                        EXPECT_EQ(batch, rule_is_skip ? batch : progress.batch);
                        return std::string("here");
                      },
                  .tell = [this](const NonFiniteBatch& batch) { told.push_back(batch); },
                  .share = [](std::int64_t value, int) { return value; }}),
        rule_is_skip(rule == OnNonFinite::skip) {
    recovery.keep();
  }

  void train(std::int64_t end) {
    while (progress.batch < end) {
      const std::int64_t left_out = recovery.next_left_out(progress.batch, end);
      for (; progress.batch < left_out; ++progress.batch) {
        if (!finite) recovery.loss_not_finite(progress.batch);
        if (spoiling.contains(progress.batch)) finite = rule_is_skip;
        if (spoiling.contains(progress.batch) && rule_is_skip) recovery.update_skipped(progress.batch);
        if (!recovery.ignores_results()) trained.push_back(progress.batch);
      }
      if (left_out < end) ++progress.batch;
    }
  }
  void fit() {
    do train(total);
    while (recovery.act(total));
  }

  const std::int64_t total;
  const std::set<std::int64_t> spoiling;
  TrainProgress progress{};
  bool finite = true, finite_at_point = true;
  int went_back = 0;
  std::vector<NonFiniteBatch> told{};
  std::vector<std::int64_t> trained{};
  Recovery recovery;
  const bool rule_is_skip;
};

TEST(Recovery, FindsEveryCulpritByHalving) {
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

TEST(Recovery, LeavesOutOneBatchAfterTheOther) {
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

TEST(Recovery, GivesUpAfterSoManyRollbacks) {
  FakeRun run(20, {3, 4, 19}, /*most_rollbacks=*/2);
  expect_error([&] { run.fit(); }, {"step 19 is not finite", "after 2 rollbacks", "here"});
}

TEST(Recovery, GoesBackToFiniteWeightsOnly) {
  FakeRun run(20, {3});
  run.finite_at_point = false;
  expect_error([&] { run.fit(); }, {"the state that the run would go back to is not finite"});
}

TEST(Recovery, TellsOfTheFirstSkippedBatchAlone) {
  FakeRun run(20, {7, 9, 30}, 3, OnNonFinite::skip);
  run.fit();
  ASSERT_EQ(1u, run.told.size());
  EXPECT_EQ(7, run.told[0].batch);
  EXPECT_EQ(-1, run.told[0].back_to);
  EXPECT_EQ(0, run.went_back);
  EXPECT_EQ(20u, run.trained.size());
}

}  // namespace
}  // namespace tandem::test
