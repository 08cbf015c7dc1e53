#include <tandem/ops/cpu/softmax_row.h>

#include <algorithm>
#include <limits>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/vector_math.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kLanes =
    16;  // partial results of a row; a fixed number, so that sums do not depend on the vector width

}  // namespace

TANDEM_CLONES float row_max(const float* x, std::int64_t n) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

TANDEM_CLONES float exp_row(const float* x, float* y, std::int64_t n, float shift) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = VectorMath::exp(x[i] - shift);
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] += y[i + k];
  for (; i < n; ++i) lanes[i % kLanes] += y[i];
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

TANDEM_CLONES void scale_row(float* y, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) y[i] *= factor;
}

}  // namespace tandem::engine
