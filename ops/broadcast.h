#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem::engine {

using Strides = std::vector<std::int64_t>;  ///< in elements, one an axis

/// The shape that all `shapes` broadcast to, by NumPy's rule: aligned at the last axis, an extent of 1
/// stretches. Throws Error naming two shapes that do not fit and the axis.
Shape broadcast_shape(std::span<const TensorType> types);

/// Strides of a dense row-major array of `shape`.
Strides dense_strides(const Shape& shape);
/// Strides with which a dense array of `shape` is read as one of shape `out`: 0 where it is stretched.
Strides broadcast_strides(const Shape& shape, const Shape& out);

/// Where element `i` of a row-major walk over `extents` lies.
std::int64_t position(const Shape& extents, const Strides& strides, std::int64_t i);

/// Nested loops over `extents`, outermost first, with each operand's strides.
struct Loops {
  Shape extents;
  std::vector<Strides> strides;  ///< per operand
};
/// The same walk with as few loops as possible: extents of 1 dropped, neighbors that every operand walks
/// as one merged. At least one loop is left.
Loops collapse(const Loops& loops);

}  // namespace tandem::engine
