#include <tandem/core/memory.h>

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/format.h>
#ifdef TANDEM_HAS_OPENMP
#include <omp.h>
#endif

#include <tandem/core/error.h>

namespace tandem {

std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
  if (bytes < 0) throw Error(fmt::format("allocation of {} bytes", bytes));
  const auto alignment = std::align_val_t{static_cast<std::size_t>(kAlignment)};
  void* data = ::operator new(static_cast<std::size_t>(std::max(align_up(bytes), kAlignment)), alignment,
                              std::nothrow);
  if (!data)
    throw Error(fmt::format("out of memory: {:.1f} MB were asked for", static_cast<double>(bytes) / 1e6));
#ifndef NDEBUG
  poison(data, bytes);
#endif
  return {static_cast<std::byte*>(data), [alignment](std::byte* p) { ::operator delete(p, alignment); }};
}

void poison(void* data, std::int64_t bytes) {
  if (bytes > 0) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
}

int default_threads() {
  if (const char* text = std::getenv("TANDEM_THREADS"))
    if (const int n = std::atoi(text); n > 0) return n;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

#ifdef TANDEM_HAS_OPENMP
TeamSize::TeamSize(int threads) : outer_(omp_get_max_threads()) { omp_set_num_threads(threads); }
TeamSize::~TeamSize() { omp_set_num_threads(outer_); }
#else
TeamSize::TeamSize(int) : outer_(1) {}
TeamSize::~TeamSize() = default;
#endif

}  // namespace tandem
