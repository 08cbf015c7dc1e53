#include <tandem/dist/fold.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

constexpr std::string_view kSummable = "f32, f64, i32, i64";

// Two ranks need no partial sums, so this takes half the time of the general fold.
template <class T>
void fold_two(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
              std::int64_t first, std::int64_t count) {
  const T* a = reinterpret_cast<const T*>(sources[0]) + first;
  const T* b = reinterpret_cast<const T*>(sources[1]) + first;
  T* to = reinterpret_cast<T*>(destinations.front()) + first;
  T* also_to = reinterpret_cast<T*>(destinations.back()) + first;
#pragma GCC ivdep  // arrays are the same or do not overlap
  for (std::int64_t i = 0; i < count; ++i) {
    const T sum = a[i] + b[i];
    to[i] = sum;
    also_to[i] = sum;
  }
}

// Works block by block: a block's partial sum stays in the first-level cache; each array is streamed once.
template <class T>
void fold(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
          std::int64_t first, std::int64_t count) {
  if (sources.size() == 2 && destinations.size() <= 2)
    return fold_two<T>(sources, destinations, first, count);
  constexpr std::int64_t kBlock = 1024;
  alignas(64) T sum[kBlock];
  for (std::int64_t begin = first; begin < first + count; begin += kBlock) {
    const auto length = static_cast<std::size_t>(std::min(kBlock, first + count - begin));
    const auto offset = static_cast<std::size_t>(begin) * sizeof(T);
    std::memcpy(sum, sources[0] + offset, length * sizeof(T));
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const T* values = reinterpret_cast<const T*>(sources[s] + offset);
      for (std::size_t i = 0; i < length; ++i) sum[i] += values[i];
    }
    for (std::byte* destination : destinations) std::memcpy(destination + offset, sum, length * sizeof(T));
  }
}

}  // namespace

void check_summable(DType dtype, int rank, std::uint64_t channel) {
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 && dtype != DType::i64)
    throw Error(fmt::format("rank {}, channel {}: ranks cannot sum {}: only {}", rank, channel,
                            name_of(dtype), kSummable));
}

void fold_ranks(DType dtype, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, std::int64_t first, std::int64_t count) {
  switch (dtype) {
    case DType::f32: return fold<float>(sources, destinations, first, count);
    case DType::f64: return fold<double>(sources, destinations, first, count);
    case DType::i32:
      return fold<std::uint32_t>(sources, destinations, first, count);  // unsigned: overflow wraps
    case DType::i64: return fold<std::uint64_t>(sources, destinations, first, count);
    default: throw Error(fmt::format("ranks cannot sum {}: only {}", name_of(dtype), kSummable));
  }
}

}  // namespace tandem::engine
