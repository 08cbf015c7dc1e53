#include <tandem/core/base/element.h>

#include <algorithm>

namespace tandem::engine {

bool all_finite(const TensorType& type, const void* data) {
  if (!is_floating(type.dtype)) return true;
  return visit_dtype(type.dtype, [&](auto zero) {
    using E = decltype(zero);
    const E* x = static_cast<const E*>(data);
    return std::all_of(x, x + type.elements(), [](E v) { return std::isfinite(static_cast<double>(v)); });
  });
}

}  // namespace tandem::engine
