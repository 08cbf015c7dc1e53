#pragma once
#include <algorithm>
#include <cstdint>

namespace tandem {

/// Threads worth waking for work on so many bytes: a sleeping team takes tens of microseconds to start.
inline int useful_threads(int threads, std::int64_t bytes) {
  constexpr std::int64_t kBytesPerThread = 128 << 10;
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kBytesPerThread, 1, threads));
}

/// Calls `f(begin, end)` for `threads` consecutive parts of 0 … n−1, each on a thread of its own; on the
/// calling thread alone for one. `f` must not throw.
template <class F> void parallel_parts(int threads, std::int64_t n, const F& f) {
  threads = static_cast<int>(std::min<std::int64_t>(threads, n));
  if (threads <= 1) {
    if (n > 0) f(std::int64_t{0}, n);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int t = 0; t < threads; ++t) f(n * t / threads, n * (t + 1) / threads);
}

}  // namespace tandem
