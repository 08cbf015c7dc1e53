#pragma once
#include <algorithm>

#include <tandem/ops/shape.h>

namespace tandem::engine {

/// Reshapes one value per model, (models,), so that it broadcasts over arrays of rank `rank` whose leading
/// axis is the models. A scalar (of one model) is unchanged.
inline Tensor over_models(const Tensor& value, int rank) {
  if (value.type().rank() == 0) return value;
  Shape shape(static_cast<std::size_t>(std::max(1, rank)), 1);
  shape[0] = value.shape()[0];
  return reshape(value, shape);
}

}  // namespace tandem::engine
