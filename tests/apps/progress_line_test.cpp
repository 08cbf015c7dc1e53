#include "progress_line.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

namespace tandem::apps {
namespace {

std::int64_t count(const std::string& text, const std::string& words) {
  std::int64_t times = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++times;
  return times;
}

// After 0.1 s, 0.2 s, and 0.4 s of one step; an evaluation; and nothing once the last step is done.
TEST(ProgressLines, SayWhatTakesLong) {
  using std::chrono::milliseconds;
  ::testing::internal::CaptureStdout();
  {
    ProgressLine line(2, 0, 1, 1, /*terminal=*/false, /*silence=*/0.1);
    std::this_thread::sleep_for(milliseconds(500));
    line.update({.batch = 0, .samples = 1, .loss = {1}, .lr = {1}, .seconds = 0.5});
    line.testing(1);
    std::this_thread::sleep_for(milliseconds(150));
    line.tested();
    line.update({.batch = 1, .samples = 1, .loss = {1}, .lr = {1}, .seconds = 0.5});
    std::this_thread::sleep_for(milliseconds(250));
  }
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(3, count(said, "step 0 has taken")) << said;
  EXPECT_EQ(1, count(said, "step 0 has taken 0.1 s so far")) << said;
  EXPECT_EQ(1, count(said, "step 0 has taken 0.4 s so far")) << said;
  EXPECT_GE(count(said, "the evaluation has taken 0.1 s so far"), 1) << said;
  EXPECT_EQ(0, count(said, "step 2")) << said;
}

// One step took 10 minutes, because another rank was stopped; the others take a second each.
TEST(ProgressLines, AStallIsNoPartOfTheTimeLeft) {
  ::testing::internal::CaptureStdout();
  {
    ProgressLine line(1000, 0, 1, 100, /*terminal=*/false);
    for (std::int64_t batch = 0; batch < 200; ++batch)
      line.update(
          {.batch = batch, .samples = 1, .loss = {1}, .lr = {1}, .seconds = batch == 150 ? 600.0 : 1.0});
  }
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(1, count(said, "step 99 (100 of 1000)  loss 1.0000  1 images/s  15:00 left")) << said;
  EXPECT_EQ(1, count(said, "step 150 (151 of 1000)  loss 1.0000  0 images/s  14:09 left")) << said;
  EXPECT_EQ(1, count(said, "step 199 (200 of 1000)  loss 1.0000  1 images/s  13:20 left")) << said;
}

}  // namespace
}  // namespace tandem::apps
