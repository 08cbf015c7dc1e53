#pragma once
#include <tandem/core/graph/tensor.h>

namespace tandem {

/// Returns the gradients of `y`, one element, with respect to each Tensor of `x`: values that a loss can use
/// and that can be differentiated again, as in a gradient penalty (Gulrajani et al. 2017), if the ops have
/// derivatives of their derivatives. At once, each `x` must require a gradient or depend on a Tensor that
/// does, and `grad()` is left alone. In a pipeline, the modules between `x` and `y` must lie in one stage.
/// Throws Error if `y` has several elements or does not depend on one of `x`.
Tensors gradient(const Tensor& y, const Tensors& x);

}  // namespace tandem
