#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// Throws Error naming rank and channel unless ranks can sum elements of this type: f32, f64, i32, i64
/// (integers wrap around).
void check_summable(DType dtype, int rank, std::uint64_t channel);

/// Computes the left fold in rank order that every transport must compute: for `first` <= i < `first` +
/// `count`, writes ((sources[0][i] + sources[1][i]) + sources[2][i]) + ... to destinations[*][i]. A source
/// and a destination are the same array or do not overlap. `first` and `count` are in elements.
void fold_ranks(DType dtype, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, std::int64_t first, std::int64_t count);

}  // namespace tandem::engine
