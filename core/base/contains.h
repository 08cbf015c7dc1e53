#pragma once
#include <algorithm>
#include <functional>
#include <ranges>

namespace tandem::engine {

/// Returns whether an element of `range`, after `projection`, equals `value`.
template <std::ranges::input_range Range, class T, class Projection = std::identity>
bool contains(const Range& range, const T& value, Projection projection = {}) {
  return std::ranges::find(range, value, projection) != std::ranges::end(range);
}

}  // namespace tandem::engine
