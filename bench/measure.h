#pragma once
#include <ctime>

#include <algorithm>
#include <vector>

namespace tandem::bench {

inline double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Returns the CPU time of this thread, which does not include other programs.
inline double thread_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace tandem::bench
