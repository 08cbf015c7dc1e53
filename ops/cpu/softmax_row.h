#pragma once
#include <cstdint>

namespace tandem::engine {

// The parts of a softmax of n numbers. Sums do not depend on the vector width.

/// Returns the largest of the numbers; −∞ if there are none.
float row_max(const float* x, std::int64_t n);
/// Computes y = exp(x − shift), where y can be x. Returns the sum of y.
float exp_row(const float* x, float* y, std::int64_t n, float shift);
/// Multiplies each number by a factor.
void scale_row(float* y, std::int64_t n, float factor);

}  // namespace tandem::engine
