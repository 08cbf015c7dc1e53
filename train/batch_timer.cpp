#include <tandem/train/batch_timer.h>

#include <utility>

#include <tandem/core/runtime/timeline.h>

namespace tandem {
using namespace engine;

void BatchTimer::go_on() { since_ = steady_seconds() - tail_; }

void BatchTimer::pause() { tail_ = steady_seconds() - since_; }

double BatchTimer::result(std::int64_t samples, bool is_last_turn) {
  const double now = steady_seconds(), seconds = now - std::exchange(since_, now);
  const auto add = [&](Total& total) {
    total.batches += is_last_turn ? 1 : 0;
    total.samples += is_last_turn ? samples : 0;
    total.seconds += seconds;
  };
  if (std::exchange(is_warming_up_, false)) {
    add(first_);
  } else {
    add(epoch_);
    add(run_);
  }
  return seconds;
}

BatchTimer::Total BatchTimer::or_first(const Total& total) const {
  if (total.batches > 0) return total;
  Total only = first_;
  only.seconds += tail_;
  return only;
}

}  // namespace tandem
