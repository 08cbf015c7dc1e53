#include <tandem/core/base/sleep.h>

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace tandem::engine {

void make_sleeps_precise() {
  thread_local const int done = prctl(PR_SET_TIMERSLACK, 1);
  static_cast<void>(done);
}

void sleep_until(std::chrono::steady_clock::time_point when) {
  make_sleeps_precise();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  const timespec until{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

}  // namespace tandem::engine
