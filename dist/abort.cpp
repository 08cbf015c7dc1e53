#include <tandem/dist/abort.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

bool AbortFlag::raise(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (raised_.load(std::memory_order_relaxed)) return false;
  reason_ = reason;
  raised_.store(true, std::memory_order_release);
  return true;
}

void AbortFlag::check() const {
  if (!raised()) return;
  const std::lock_guard lock(mutex_);
  throw Aborted(reason_);
}

}  // namespace tandem::engine
