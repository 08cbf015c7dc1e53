#pragma once
#include <chrono>

namespace tandem::engine {

/// Makes the calling thread's sleeps precise to some microseconds: it sets its timer slack, 50 µs by default,
/// to the minimum.
void make_sleeps_precise();

/// Sleeps until `when` without spinning, to within some microseconds.
void sleep_until(std::chrono::steady_clock::time_point when);

}  // namespace tandem::engine
