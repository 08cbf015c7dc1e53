#pragma once
#include <algorithm>
#include <vector>

#include <tandem/ops/reduce.h>
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

/// Reduces the elements of each model to one value: x (models, …) to (models,), or a scalar if there is one
/// model.
inline Tensor of_each_model(const Tensor& x, int models, Tensor (*reduction)(const Tensor&, Axes, bool)) {
  std::vector<int> axes;
  for (int axis = models > 1 ? 1 : 0; axis < x.type().rank(); ++axis) axes.push_back(axis);
  return axes.empty() ? x : reduction(x, axes, false);
}

}  // namespace tandem::engine
