// Learning rates against closed forms, and against PyTorch's schedulers.
#include <cmath>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/train/lr_schedule.h>

#include "expect_error.h"

namespace tandem::nn {
namespace {

std::vector<double> first(const LrSchedule& schedule, int count) {
  std::vector<double> factors;
  for (int b = 0; b < count; ++b) factors.push_back(schedule(b));
  return factors;
}

void expect_near(const std::vector<double>& expected, const LrSchedule& schedule) {
  const auto factors = first(schedule, static_cast<int>(expected.size()));
  for (std::size_t b = 0; b < expected.size(); ++b)
    EXPECT_NEAR(expected[b], factors[b], 1e-12) << "batch " << b;
}

TEST(LrSchedules, ChangeAtTheirBatches) {
  expect_near({1, 1, 1}, constant_lr());
  expect_near({1, 1, 1, 0.1, 0.1, 0.1, 0.01}, step_lr(3, 0.1));
  expect_near({1, 0.5, 0.5, 0.5, 0.25, 0.25}, multi_step_lr({1, 4}, 0.5));
  expect_near({1, 0.5, 0.25}, multi_step_lr({1, 2}, 0.5));
}

TEST(LrSchedules, FollowTheirCurvesAndStayAtTheEnd) {
  // torch.optim.lr_scheduler.CosineAnnealingLR(T_max=4, eta_min=0.1) for a rate of 1
  expect_near({1.0, 0.868198051533946, 0.55, 0.231801948466054, 0.1, 0.1}, cosine_lr(4, 0.1));
  expect_near({1, 0.75, 0.5, 0.25, 0, 0}, linear_lr(4));
  expect_near({1, 0.8, 0.6, 0.4, 0.2, 0.2}, linear_lr(4, 0.2));
}

TEST(LrSchedules, CountFromTheEndOfTheWarmUp) {
  expect_near({0, 0.25, 0.5, 0.75, 1, 0.5, 0, 0}, warm_up(4, linear_lr(2)));
  expect_near({0.1, 0.55, 1, 1}, warm_up(2, constant_lr(), 0.1));
  expect_near({1, 0.5}, warm_up(0, linear_lr(2)));
}

TEST(LrSchedules, RefuseInvalidParameters) {
  EXPECT_THROW(step_lr(0, 0.1), Error);
  testing::expect_error([] { multi_step_lr({3, 1, 9}, 0.1); }, {"milestones must ascend", "not 1"});
  EXPECT_THROW(cosine_lr(0), Error);
  EXPECT_THROW(linear_lr(-1), Error);
  EXPECT_THROW(warm_up(-1, constant_lr()), Error);
}

}  // namespace
}  // namespace tandem::nn
