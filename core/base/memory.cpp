#include <tandem/core/base/memory.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
  constexpr std::int64_t kHugePage = 2 << 20;
  if (bytes < 0) throw Error(fmt::format("allocation of {} bytes", bytes));
  const bool huge = bytes >= 2 * kHugePage;  // fewer page lookups: kernels are a few percent faster
  const auto alignment = std::align_val_t{static_cast<std::size_t>(huge ? kHugePage : kAlignment)};
  void* data = ::operator new(static_cast<std::size_t>(std::max(align_up(bytes), kAlignment)), alignment,
                              std::nothrow);
  if (!data)
    throw Error(fmt::format("out of memory: {:.1f} MB were requested", static_cast<double>(bytes) / 1e6));
#ifdef MADV_HUGEPAGE
  if (huge) madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a hint, which can be refused
#endif
#ifndef NDEBUG
  poison(data, bytes);
#endif
  return {static_cast<std::byte*>(data), [alignment](std::byte* p) { ::operator delete(p, alignment); }};
}

void poison(void* data, std::int64_t bytes) {
  if (bytes > 0) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
}

}  // namespace tandem::engine
