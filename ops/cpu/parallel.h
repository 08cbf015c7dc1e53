#pragma once
#include <algorithm>
#include <cstdint>

namespace tandem::engine {

/// The whole team of `threads`, or 1 where work on so many bytes is not worth waking it: a sleeping team
/// takes tens of microseconds to start. Never a part of it: OpenMP ends the threads that a smaller team
/// leaves over, and starts new ones for the next larger team.
inline int useful_threads(int threads, std::int64_t bytes) {
  constexpr std::int64_t kBytesOfATeam = 256 << 10;
  return bytes < kBytesOfATeam ? 1 : threads;
}

/// Floating-point operations below which a team of oneDNN's loses more in meeting than it gains (a product of
/// 64³: 247 GFLOP/s on one thread, 161 on two).
inline constexpr double kTeamFlops = 1 << 20;

/// Calls `f(begin, end)` for consecutive parts of 0 … n−1, one for each thread of a team of `threads` (where
/// n is smaller, some threads get none); on the calling thread alone for one. `f` must not throw.
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
