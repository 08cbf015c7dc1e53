#include "progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "log.h"
#include "model_texts.h"

namespace tandem::apps {
namespace {
constexpr std::int64_t kWidth = 30;   // of the bar, if there is room
constexpr double kRedraw = 0.1;       // seconds
constexpr double kTestingPart = 0.5;  // of the time that training takes for an image, and a bit more

// 75 s: "1:15".
std::string clock(double seconds) {
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

// The current width of the terminal at standard output.
std::int64_t columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Fits one line of the terminal: a longer line could not be drawn over itself, and would be repeated below.
std::string drawn(double done, const std::string& numbers) {
  const std::int64_t room = columns() - 1, width = std::min(kWidth, room - std::ssize(numbers) - 3);
  if (width < 1) return numbers.substr(0, static_cast<std::size_t>(room));
  const auto filled = static_cast<std::int64_t>(done * static_cast<double>(width));
  return fmt::format("[{:=<{}}{:<{}}] {}", "", filled, "", width - filled, numbers);
}

// "loss 2.3026"; for several models "losses 2.3026, -, 2.2985": one that has stopped has no loss.
std::string named(const std::vector<double>& losses) {
  if (losses.size() == 1)  // a NaN's sign has no meaning
    return fmt::format("loss {:.4f}", std::isnan(losses[0]) ? std::fabs(losses[0]) : losses[0]);
  constexpr std::ptrdiff_t kMost = 4;
  const std::ptrdiff_t shown = std::min(std::ssize(losses), kMost), more = std::ssize(losses) - shown;
  return fmt::format("losses {}{}", of_models({losses.begin(), losses.begin() + shown}, 4),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// Of models that take turns, those of this turn: "models 2, 3: losses 2.3026, 2.2985".
std::string named(const BatchResult& batch) {
  std::vector<double> losses;
  for (const int m : batch.models) losses.push_back(batch.loss.at(static_cast<std::size_t>(m)));
  return fmt::format("model{} {}: {}", losses.size() == 1 ? "" : "s", fmt::join(batch.models, ", "),
                     named(losses));
}

}  // namespace

ProgressLine::ProgressLine(std::int64_t total, std::int64_t before, int turns, int every, bool terminal,
                           double silence)
    : total_(total),
      before_(before),
      turns_(turns),
      every_(every),
      terminal_(terminal),
      next_(before),
      work_(log_info, silence) {
  begin_step(before);
}

void ProgressLine::begin_step(std::int64_t batch) {
  next_ = batch;
  work_.begin(batch < total_ ? fmt::format("step {}", batch) : "");
}

void ProgressLine::update(const BatchResult& batch) {
  begin_step(batch.batch + 1);
  images_ += batch.samples;
  all_images_ += batch.samples;
  ++updates_;
  seconds_ += batch.seconds;
  since_ += batch.seconds;
  const double per_update = seconds_per_update(batch.seconds);
  const std::int64_t done = batch.batch + 1;
  const bool due =
      terminal_ ? since_ >= kRedraw : done == before_ + 1 || done % every_ == 0 || since_ >= kSilence;
  if (!due && done != total_) return;
  const double rate = static_cast<double>(images_) / since_;
  // After a rollback batches come again, but then models take no turns.
  const std::int64_t to_come = turns_ == 1 ? total_ - done : turns_ * (total_ - before_) - updates_;
  const double left = per_update * static_cast<double>(to_come);
  images_ = 0;
  since_ = 0;
  // Steps count from 0, as in metrics.jsonl and in traces.
  std::string numbers = fmt::format("step {} ({} of {})  {}", batch.batch, done, total_,
                                    turns_ == 1 ? named(batch.loss) : named(batch));
  last_ = numbers;
  if (done > before_ + 1)  // for the first batch, only the time to its loss is known
    numbers += fmt::format("  {:.0f} images/s  {} left", rate, clock(left));
  if (terminal_) {
    done_ = static_cast<double>(done) / static_cast<double>(total_);
    draw_line(drawn(done_, numbers));
  } else {
    log_info(numbers);
  }
}

// The median of the last minute's parts, so that a stall counts for nothing.
double ProgressLine::seconds_per_update(double seconds) {
  constexpr double kPart = 5;  // seconds, at least
  constexpr std::size_t kParts = 12;
  part_seconds_ += seconds;
  ++part_updates_;
  const double mean = part_seconds_ / static_cast<double>(part_updates_);
  if (part_seconds_ >= kPart) {
    parts_.push_back(mean);
    if (parts_.size() > kParts) parts_.pop_front();
    part_seconds_ = 0;
    part_updates_ = 0;
  }
  if (parts_.empty()) return mean;
  std::vector<double> sorted(parts_.begin(), parts_.end());
  std::ranges::sort(sorted);
  return sorted[(sorted.size() - 1) / 2];
}

void ProgressLine::tested() { begin_step(next_); }

void ProgressLine::testing(std::int64_t images) {
  work_.begin("the evaluation");
  if (terminal_ && !last_.empty()) draw_line(drawn(done_, last_ + "  testing"));
  const bool is_long =
      kTestingPart * seconds_ * static_cast<double>(images) > kSilence * static_cast<double>(all_images_);
  if (!terminal_ && is_long) log_info(fmt::format("evaluates {} images", images));
}

}  // namespace tandem::apps
