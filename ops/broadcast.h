#pragma once
#include <cstdint>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem::engine {

using Strides = std::vector<std::int64_t>;  ///< in elements, one per axis

/// Returns the shape that all `types` broadcast to by NumPy's rule: shapes are aligned at the last axis, and
/// an extent of 1 stretches. Throws Error naming two shapes that do not fit and the axis.
Shape broadcast_shape(TypesView types);

/// Returns the strides of a dense row-major array of `shape`.
Strides dense_strides(const Shape& shape);
/// Returns the strides that read a dense array of `shape` as an array of shape `out`; a stretched axis has 0.
Strides broadcast_strides(const Shape& shape, const Shape& out);

/// Returns the offset of element `i` in a row-major walk over `extents`.
std::int64_t position(const Shape& extents, const Strides& strides, std::int64_t i);

/// Nested loops over `extents`, outermost first, with each operand's strides.
struct Loops {
  Shape extents;
  std::vector<Strides> strides;  ///< per operand
};
/// Returns the same walk with as few loops as possible: drops extents of 1, and merges two neighboring loops
/// if every operand walks them as one. At least one loop remains.
Loops collapse(const Loops& loops);

}  // namespace tandem::engine
