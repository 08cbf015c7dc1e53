#include "ceilings.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include <tandem/core/base/memory.h>

#include "measure.h"

namespace tandem::bench {
using namespace engine;
namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define BEST_CLONE __attribute__((target_clones("default", "fma", "avx512f")))
#else
#define BEST_CLONE
#endif

using Vector = float __attribute__((vector_size(64)));  // in as many registers as this processor needs
constexpr int kChains = 10;                             // enough to hide an operation's latency
constexpr std::int64_t kRounds = 4'000'000;

// 2·16·kChains·kRounds operations.
BEST_CLONE float multiply_add(float by) {
  Vector x[kChains], a = Vector{} + by, b = Vector{} + 0.5f;
  for (int i = 0; i < kChains; ++i) x[i] = Vector{} + static_cast<float>(i);  // equal chains would be merged
  for (std::int64_t r = 0; r < kRounds; ++r)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * a + b;
  Vector sum = {};
  for (const Vector& v : x) sum += v;
  return sum[0];
}

BEST_CLONE void add(const float* x, const float* y, float* z, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

// Returns the seconds that the slowest of `threads` takes for `work(thread)`, the best of `tries`. They are
// CPU time, which does not include other programs.
template <class F> double seconds(int threads, int tries, const F& work) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    std::vector<double> taken(static_cast<std::size_t>(threads));
    const auto measure = [&](int t) {
      const double begin = thread_seconds();
      work(t);
      taken[static_cast<std::size_t>(t)] = thread_seconds() - begin;
    };
    std::vector<std::thread> team;
    for (int t = 1; t < threads; ++t) team.emplace_back(measure, t);
    measure(0);
    for (auto& t : team) t.join();
    best = std::min(best, std::ranges::max(taken));
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(int threads) {
  Ceilings c{};
  volatile float sink = 0.25f;
  const float by = sink;
  c.flops =
      threads * 2.0 * 16 * kChains * kRounds / seconds(threads, 5, [&](int) { sink = multiply_add(by); });
  constexpr std::int64_t kElements = 16 << 20;  // per thread; 64 MB per array, more than caches hold
  std::vector<Buffer> arrays;
  for (int i = 0; i < 3 * threads; ++i) arrays.emplace_back(kElements * std::int64_t{sizeof(float)});
  const auto array = [&](int i) {
    return reinterpret_cast<float*>(arrays[static_cast<std::size_t>(i)].data());
  };
  for (int i = 0; i < 3 * threads; ++i) std::fill_n(array(i), kElements, 1.0f);
  const double t =
      seconds(threads, 7, [&](int k) { add(array(3 * k), array(3 * k + 1), array(3 * k + 2), kElements); });
  c.bandwidth = threads * 3.0 * kElements * sizeof(float) / t;
  return c;
}

}  // namespace tandem::bench
