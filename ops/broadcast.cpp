#include <tandem/ops/broadcast.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

Shape broadcast_shape(TypesView types) {
  Shape out;
  for (const auto& t : types) {
    const Shape& shape = t.shape;
    if (shape.size() > out.size()) out.insert(out.begin(), shape.size() - out.size(), 1);
    for (std::size_t i = 1; i <= shape.size(); ++i) {
      const std::int64_t extent = shape[shape.size() - i];
      std::int64_t& result = out[out.size() - i];
      if (extent == result || extent == 1) continue;
      if (result != 1)
        throw Error(fmt::format("{} does not broadcast against {}: extents {} and {} of axis -{}",
                                to_string(shape), to_string(out), extent, result, i));
      result = extent;
    }
  }
  return out;
}

Strides dense_strides(const Shape& shape) {
  Strides strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Strides broadcast_strides(const Shape& shape, const Shape& out) {
  const Strides dense = dense_strides(shape);
  const std::size_t leading = out.size() - shape.size();
  Strides strides(out.size(), 0);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == out[leading + i] && shape[i] != 1) strides[leading + i] = dense[i];
  return strides;
}

std::int64_t position(const Shape& extents, const Strides& strides, std::int64_t i) {
  std::int64_t offset = 0;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    offset += i % extents[axis] * strides[axis];
    i /= extents[axis];
  }
  return offset;
}

Loops collapse(const Loops& loops) {
  Loops result;
  result.strides.resize(loops.strides.size());
  for (std::size_t axis = 0; axis < loops.extents.size(); ++axis) {
    const std::int64_t extent = loops.extents[axis];
    if (extent == 1) continue;
    bool merges = !result.extents.empty();
    for (std::size_t o = 0; merges && o < loops.strides.size(); ++o)
      merges = result.strides[o].back() == loops.strides[o][axis] * extent;
    if (!merges) {
      result.extents.push_back(1);
      for (auto& s : result.strides) s.push_back(0);
    }
    result.extents.back() *= extent;
    for (std::size_t o = 0; o < loops.strides.size(); ++o) result.strides[o].back() = loops.strides[o][axis];
  }
  if (result.extents.empty()) {
    result.extents = {1};
    for (auto& s : result.strides) s = {0};
  }
  return result;
}

}  // namespace tandem::engine
