#include <tandem/train/lr_schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {
namespace {

void require(bool met, const char* what, double given) {
  if (!met) throw Error(fmt::format("learning-rate schedule: {}, not {}", what, given));
}

// The fraction of the batches that is done, 0 … 1.
double progress(std::int64_t batch, std::int64_t batches) {
  return std::min(1.0, static_cast<double>(batch) / static_cast<double>(batches));
}

}  // namespace

LrSchedule constant_lr() {
  return [](std::int64_t) { return 1.0; };
}

LrSchedule step_lr(std::int64_t every, double gamma) {
  require(every >= 1, "the interval must be at least 1 batch", static_cast<double>(every));
  return [=](std::int64_t batch) { return std::pow(gamma, static_cast<double>(batch / every)); };
}

LrSchedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma) {
  const auto until = std::is_sorted_until(milestones.begin(), milestones.end());
  require(until == milestones.end(), "milestones must ascend",
          until == milestones.end() ? 0 : static_cast<double>(*until));
  return [=, at = std::move(milestones)](std::int64_t batch) {
    return std::pow(gamma, static_cast<double>(std::upper_bound(at.begin(), at.end(), batch) - at.begin()));
  };
}

LrSchedule cosine_lr(std::int64_t batches, double least) {
  require(batches >= 1, "a cosine takes at least 1 batch", static_cast<double>(batches));
  return [=](std::int64_t batch) {
    return least + (1 - least) * 0.5 * (1 + std::cos(std::numbers::pi * progress(batch, batches)));
  };
}

LrSchedule linear_lr(std::int64_t batches, double last) {
  require(batches >= 1, "a line takes at least 1 batch", static_cast<double>(batches));
  return [=](std::int64_t batch) { return 1 + (last - 1) * progress(batch, batches); };
}

LrSchedule warm_up(std::int64_t batches, LrSchedule after, double first) {
  require(batches >= 0, "a warm-up takes 0 batches or more", static_cast<double>(batches));
  if (!after) throw Error("a warm-up needs the schedule that comes after it");
  return [=, after = std::move(after)](std::int64_t batch) {
    if (batch >= batches) return after(batch - batches);
    return first + (1 - first) * progress(batch, batches);
  };
}

}  // namespace tandem
