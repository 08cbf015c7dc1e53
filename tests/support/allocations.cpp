#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// In a separate file, so that no caller can be optimized down to malloc.
static std::atomic<long> counted{0}, live{0}, until_failure{-1};

#ifndef TANDEM_SANITIZED
// Counts a successful allocation.
static void* allocated(void* p) {
  if (p) live.fetch_add(1, std::memory_order_relaxed);
  return p;
}
static bool may_have() {
  counted.fetch_add(1, std::memory_order_relaxed);
  return until_failure.load(std::memory_order_relaxed) < 0 || until_failure.fetch_sub(1) != 0;
}
static void freed(void* p) {
  if (p) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(p);
}
void* operator new(std::size_t size) {
  if (void* p = may_have() ? allocated(std::malloc(size ? size : 1)) : nullptr) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  const auto a = static_cast<std::size_t>(alignment);
  return may_have() ? allocated(std::aligned_alloc(a, (size + a - 1) / a * a)) : nullptr;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (void* p = operator new(size, alignment, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p, std::align_val_t) noexcept { freed(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { freed(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { freed(p); }
void operator delete(void* p) noexcept { freed(p); }
void operator delete(void* p, std::size_t) noexcept { freed(p); }
#endif

namespace tandem::testing {
long allocations() { return counted.load(); }
long live_allocations() { return live.load(); }
void fail_allocation_after(long n) { until_failure.store(n); }
}  // namespace tandem::testing
