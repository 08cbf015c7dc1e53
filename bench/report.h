#pragma once
#include <algorithm>
#include <functional>
#include <string>

#include <fmt/format.h>

#include <tandem/core/runtime/timeline.h>

namespace tandem::bench {

/// Returns the seconds of the fastest of `repeats` calls: the cost without disturbance.
inline double fastest(int repeats, const std::function<void()>& f) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const double begin = engine::steady_seconds();
    f();
    best = std::min(best, engine::steady_seconds() - begin);
  }
  return best;
}

/// Prints a figure, and whether it is at most the target.
inline void report(const std::string& what, double figure, const std::string& unit, double target) {
  fmt::print("{:<58} {:>10.3f} {:<4} target {:>7.3f}  {}\n", what, figure, unit, target,
             figure <= target ? "met" : "MISSED");
}

}  // namespace tandem::bench
