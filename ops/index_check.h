#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// Returns the place of an element as text for errors: " of sample 3" or, of (N,T), " of sample 3, position
/// 5,".
std::string place_in(const Shape& shape, std::int64_t element);

/// Checks indices of a shape against the extent of the axis that they index.
class IndexCheck {
 public:
  IndexCheck(Shape indices, std::int64_t extent) : shape_(std::move(indices)), extent_(extent) {}
  /// Throws Error naming the first index outside 0 … extent−1 and its place; of (N,T), sample and position.
  void operator()(const std::int32_t* indices) const;

 private:
  Shape shape_;
  std::int64_t extent_;
};

}  // namespace tandem::engine
