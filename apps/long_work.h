#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tandem::apps {

/// Tells of work that takes long that it goes on: after `silence` seconds, and again each time when that time
/// has doubled. All functions can be called while it tells.
class LongWork {
 public:
  using Tell = std::function<void(const std::string& text)>;
  /// `tell` can be empty.
  LongWork(Tell tell, double silence);
  /// `what` begins, and what was under way has ended.
  void begin(const std::string& what);
  void end() { begin(""); }

 private:
  using Clock = std::chrono::steady_clock;
  void watch(const std::stop_token& stop);

  const Tell tell_;
  const Clock::duration silence_;
  std::mutex mutex_;  // of what follows
  std::condition_variable_any changed_;
  std::string what_{};  // empty: nothing that can take long
  Clock::time_point began_, due_;
  std::jthread watch_;  // the last member: it uses the others
};

}  // namespace tandem::apps
