#pragma once
#include <cstdint>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// A shape seen as (outer, extent, inner), for kernels that work along one axis: `outer` and `inner` are the
/// products of the extents before and after it.
struct AxisSplit {
  std::int64_t outer = 1, extent, inner = 1;
  AxisSplit(const Shape& shape, int axis) : extent(shape[static_cast<std::size_t>(axis)]) {
    for (int a = 0; a < static_cast<int>(shape.size()); ++a)
      if (a != axis) (a < axis ? outer : inner) *= shape[static_cast<std::size_t>(a)];
  }
};

}  // namespace tandem::engine
