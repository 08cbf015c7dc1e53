#pragma once
#include <algorithm>
#include <cstdint>

namespace tandem::engine {

/// Returns `threads`, or 1 if `bytes` of work are not worth waking the team: a sleeping team takes tens of
/// microseconds to start. Never returns a number between: OpenMP ends the threads that a smaller team leaves
/// idle, and starts new ones for the next larger team.
inline int useful_threads(int threads, std::int64_t bytes) {
  constexpr std::int64_t kBytesOfATeam = 256 << 10;
  return bytes < kBytesOfATeam ? 1 : threads;
}

/// Below this number of floating-point operations, a oneDNN team loses more by synchronizing than it gains (a
/// product of 64³: 247 GFLOP/s on one thread, 161 on two).
inline constexpr double kTeamFlops = 1 << 20;

/// Cuts 0 … n−1 into one part per thread of a team of `threads` (fewer if n is smaller) and calls `f(begin,
/// end)` for each part on its thread. A single part runs on the calling thread. `f` must not throw.
template <class F> void parallel_parts(int threads, std::int64_t n, const F& f) {
  const int parts = static_cast<int>(std::min<std::int64_t>(threads, n));
  if (parts <= 1) {
    if (n > 0) f(std::int64_t{0}, n);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int t = 0; t < parts; ++t) f(n * t / parts, n * (t + 1) / parts);
}

}  // namespace tandem::engine
