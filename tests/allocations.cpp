#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// In a file of its own, so that no caller sees through to malloc.
static std::atomic<long> counted{0};

#ifndef TANDEM_SANITIZED
void* operator new(std::size_t size) {
  counted.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  counted.fetch_add(1, std::memory_order_relaxed);
  const auto a = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(a, (size + a - 1) / a * a);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (void* p = operator new(size, alignment, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace tandem::test {
long allocations() { return counted.load(); }
}  // namespace tandem::test
