#include "progress_line.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include <fmt/format.h>

namespace tandem::apps {
namespace {
constexpr int kWidth = 30;
constexpr double kRedraw = 0.1;  // seconds
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

ProgressLine::ProgressLine(std::int64_t total, int every)
    : total_(total), every_(every < 1 ? 1 : every), terminal_(isatty(STDOUT_FILENO) != 0), started_(now()) {}

void ProgressLine::update(std::int64_t step, double loss, double images_per_second) {
  const std::int64_t done = step + 1;
  const double left = (now() - started_) / static_cast<double>(done) * static_cast<double>(total_ - done);
  const std::string numbers = fmt::format("{}/{}  loss {:.4f}  {:.0f} images/s  {:.0f} s left", done, total_,
                                          loss, images_per_second, left);
  if (!terminal_) {
    if (done % every_ == 0 || done == total_) fmt::print("{}\n", numbers);
    std::fflush(stdout);
    return;
  }
  if (now() - drawn_ < kRedraw && done != total_) return;
  drawn_ = now();
  const int filled = static_cast<int>(done * kWidth / total_);
  fmt::print("\r[{:=<{}}{:<{}}] {}\x1b[K", "", filled, "", kWidth - filled, numbers);
  std::fflush(stdout);
}

void ProgressLine::finish() {
  if (terminal_) fmt::print("\n");
}

}  // namespace tandem::apps
