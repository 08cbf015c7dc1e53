#pragma once
#include <algorithm>
#include <vector>

namespace tandem {

/// Returns the upper median, or 0 if there are no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace tandem
