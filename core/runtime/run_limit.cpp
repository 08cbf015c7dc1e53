#include <tandem/core/runtime/run_limit.h>

#include <algorithm>
#include <chrono>

namespace tandem::engine {
namespace {
constexpr auto kLook = std::chrono::milliseconds(20);  // how often a held lane looks whether it is stopped
}  // namespace

bool RunLimit::begin(std::int64_t batch, const std::atomic<bool>& stopped) {
  std::unique_lock lock(mutex_);
  while (held_ && batch >= begun_ && !stopped) released_.wait_for(lock, kLook);
  if (stopped || batch >= end_) return false;
  begun_ = std::max<std::int64_t>(begun_, batch + 1);
  return true;
}

std::int64_t RunLimit::claim(std::int64_t batch) {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [&] { return !held_ || batch <= begun_; });
  const std::int64_t claimed = std::min<std::int64_t>(batch, end_);
  begun_ = std::max<std::int64_t>(begun_, claimed);
  return claimed;
}

void RunLimit::begin_at(std::int64_t batch) {
  const std::lock_guard lock(mutex_);
  begun_ = batch;
}

std::int64_t RunLimit::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
  return begun_;
}

void RunLimit::end_at(std::int64_t batch) {
  {
    const std::lock_guard lock(mutex_);
    end_ = batch;
    held_ = false;
  }
  released_.notify_all();
}

}  // namespace tandem::engine
