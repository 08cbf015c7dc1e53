#include "progress_line.h"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>

namespace tandem::apps {
namespace {
constexpr int kWidth = 30;
constexpr double kRedraw = 0.1;  // seconds
constexpr double kSilence = 10;  // seconds without a line
}  // namespace

ProgressLine::ProgressLine(std::int64_t total, int every, bool terminal)
    : total_(total), every_(every), terminal_(terminal) {}

void ProgressLine::update(std::int64_t step, std::int64_t images, double loss, double seconds) {
  images_ += images;
  const std::int64_t done = step + 1;
  const double silence = seconds - shown_at_;
  const bool due =
      terminal_ ? silence >= kRedraw : done == before_ + 1 || done % every_ == 0 || silence >= kSilence;
  if (!due && done != total_) return;
  const double rate = static_cast<double>(images_) / (seconds - shown_at_);
  const double left =
      (seconds - started_) / static_cast<double>(done - before_) * static_cast<double>(total_ - done);
  images_ = 0;
  shown_at_ = seconds;
  const std::string numbers =
      fmt::format("{}/{}  loss {:.4f}  {:.0f} images/s  {:.0f} s left", done, total_,
                  std::isnan(loss) ? std::fabs(loss) : loss, rate, left);  // a NaN's sign says nothing
  if (terminal_) {
    const int filled = static_cast<int>(done * kWidth / total_);
    fmt::print("\r[{:=<{}}{:<{}}] {}\x1b[K", "", filled, "", kWidth - filled, numbers);
    open_ = true;
  } else {
    fmt::print("{}\n", numbers);
  }
  std::fflush(stdout);
}

void ProgressLine::finish() {
  if (open_) fmt::print("\n");
  open_ = false;
  std::fflush(stdout);
}

}  // namespace tandem::apps
