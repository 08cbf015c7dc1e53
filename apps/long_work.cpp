#include "long_work.h"

#include <utility>

#include <fmt/format.h>

namespace tandem::apps {

LongWork::LongWork(Tell tell, double silence)
    : tell_(std::move(tell)),
      silence_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(silence))) {
  end();
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void LongWork::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  began_ = Clock::now();
  due_ = began_ + silence_;
  changed_.notify_one();
}

void LongWork::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_until(lock, stop, due_, [this, due = due_] { return due_ != due; });
    if (stop.stop_requested() || Clock::now() < due_) continue;
    const Clock::duration so_far = due_ - began_;
    due_ += so_far;
    if (what_.empty()) continue;
    const std::string text =
        fmt::format("{} has taken {:.3g} s so far", what_, std::chrono::duration<double>(so_far).count());
    lock.unlock();
    if (tell_) tell_(text);
    lock.lock();
  }
}

}  // namespace tandem::apps
