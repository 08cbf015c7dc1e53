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

}  // namespace
}  // namespace tandem::apps
