#pragma once
#include <cstdint>

#include <tandem/core/base/element.h>

namespace tandem::engine {

/// sums (columns) = Σ x (rows, columns) over the rows, in f32 and in their order, whatever the team.
void sum_rows(const float* x, std::int64_t rows, std::int64_t columns, float* sums, int threads);
void sum_rows(const BFloat16* x, std::int64_t rows, std::int64_t columns, BFloat16* sums, int threads);

/// sums[i] += x[i] for n elements.
void add_row(const float* x, std::int64_t n, float* sums);
/// sums[i] += x[i] / divisor for n elements.
void add_share(const float* x, float divisor, std::int64_t n, float* sums);

}  // namespace tandem::engine
