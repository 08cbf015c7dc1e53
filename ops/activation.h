#pragma once
#include <tandem/core/graph/tensor.h>

namespace tandem {

/// Activations that are one pointwise expression each, of the shape and dtype of `x`. (relu, gelu, tanh and
/// sigmoid, which are one instruction, are in pointwise.h.) Derivatives at kinks are PyTorch's, as said with
/// each.

/// x·sigmoid(x), also called swish.
Tensor silu(const Tensor& x);
/// x for x > 0, α·(exp x − 1) elsewhere; the derivative at 0 is α.
Tensor elu(const Tensor& x, double alpha = 1);
/// Scaled elu, which keeps mean 0 and variance 1 (Klambauer et al. 2017).
Tensor selu(const Tensor& x);
/// min(max(x + 3, 0), 6)/6; the derivative at ±3 is 0.
Tensor hard_sigmoid(const Tensor& x);
/// x·hard_sigmoid(x); the derivative is 0 at −3 and 1 at 3.
Tensor hard_swish(const Tensor& x);

}  // namespace tandem
