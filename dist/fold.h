#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// True for the element types that ranks can sum: f32, f64, i32, i64 (integers wrap around).
bool can_sum(DType dtype);
/// Those types as text, for messages.
std::string_view summable_dtypes();

/// The left fold in rank order that every transport computes: for `first` <= i < `first` + `count`,
/// ((sources[0][i] + sources[1][i]) + sources[2][i]) + ... is written to destinations[*][i]. A source and a
/// destination are the same array or do not overlap. Counts are of elements.
void fold_ranks(DType dtype, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, std::int64_t first, std::int64_t count);

}  // namespace tandem::engine
