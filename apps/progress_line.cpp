#include "progress_line.h"

#include <cmath>

#include <fmt/format.h>

#include "log.h"

namespace tandem::apps {
namespace {
constexpr int kWidth = 30;
constexpr double kRedraw = 0.1;  // seconds
constexpr double kSilence = 10;  // seconds without a line

// 75 s: "1:15".
std::string clock(double seconds) {
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

ProgressLine::ProgressLine(std::int64_t total, std::int64_t before, int every, bool terminal)
    : total_(total), before_(before), every_(every), terminal_(terminal) {}

void ProgressLine::update(const BatchResult& batch) {
  images_ += batch.samples;
  seconds_ += batch.seconds;
  since_ += batch.seconds;
  const std::int64_t done = batch.batch + 1;
  const bool due =
      terminal_ ? since_ >= kRedraw : done == before_ + 1 || done % every_ == 0 || since_ >= kSilence;
  if (!due && done != total_) return;
  const double rate = static_cast<double>(images_) / since_;
  const double left = seconds_ / static_cast<double>(done - before_) * static_cast<double>(total_ - done);
  images_ = 0;
  since_ = 0;
  const double loss = batch.loss[0];
  const std::string numbers =
      fmt::format("{}/{}  loss {:.4f}  {:.0f} images/s  {} left", done, total_,
                  std::isnan(loss) ? std::fabs(loss) : loss, rate, clock(left));  // a NaN's sign says nothing
  if (terminal_) {
    const int filled = static_cast<int>(done * kWidth / total_);
    draw_line(fmt::format("[{:=<{}}{:<{}}] {}", "", filled, "", kWidth - filled, numbers));
  } else {
    log_info(numbers);
  }
}

}  // namespace tandem::apps
