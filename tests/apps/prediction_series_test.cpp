// Fig. 9 of tandem reproduce dualpipe: errors over all stages, and in which share of iterations predicted
// weights are nearer.
#include "prediction_series.h"
#include "prediction_means.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tandem::apps {
namespace {

TEST(PredictionSeries, StagesCountByTheirWeights) {
  const std::vector<std::vector<PredictionError>> errors{{
      {.stage = 0, .updates = 1, .predicted = {2}, .stale = {4}},
      {.stage = 0, .updates = 2, .predicted = {100}, .stale = {100}},
      {.stage = 1, .updates = 1, .predicted = {0}, .stale = {8}},
  }};
  const PredictionSeries series = prediction_series(errors, 1, {10, 30});
  EXPECT_DOUBLE_EQ(std::sqrt((10 * 4 + 30 * 0) / 40.0), series.predicted.at(0));
  EXPECT_DOUBLE_EQ(std::sqrt((10 * 16 + 30 * 64) / 40.0), series.stale.at(0));
}

// The first iterations of a run have no numbers; equal errors are not nearer.
TEST(PredictionSeries, TheShareIsThatOfMeasuredIterations) {
  std::vector<std::vector<PredictionError>> errors(2);
  for (const auto& [predicted, stale] : {std::pair{1.0, 2.0}, {3.0, 2.0}, {2.0, 2.0}, {1.0, 6.0}})
    errors.push_back({{.stage = 0, .updates = 3, .predicted = {predicted}, .stale = {stale}}});
  const PredictionSeries series = prediction_series(errors, 3, {7});
  ASSERT_EQ(6u, series.stale.size());
  EXPECT_TRUE(std::isnan(series.predicted[1]) && std::isnan(series.stale[1]));
  EXPECT_DOUBLE_EQ(0.5, series.share_nearer());
  EXPECT_DOUBLE_EQ(7.0 / 12, series.ratio_of_means());
  EXPECT_DOUBLE_EQ(2, series.largest_over_mean());
  EXPECT_TRUE(std::isnan(prediction_series(errors, 2, {7}).share_nearer())) << "nothing is measured";
}

TEST(PredictionMeans, LeaveOutWhatHasNoRatio) {
  PredictionMeans means;
  EXPECT_EQ("", means.text());
  means.add({{.stage = 0, .updates = 1, .predicted = {2, 1}, .stale = {4, 2}},
             {.stage = 0, .updates = 2, .predicted = {1}, .stale = {0}},  // the weights did not move
             {.stage = 0, .updates = 3, .predicted = {NAN}, .stale = {NAN}}});
  EXPECT_EQ("predicted weights are off by 0.50 (1 update) of what old ones are", means.text());
}

}  // namespace
}  // namespace tandem::apps
