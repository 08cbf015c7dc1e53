#pragma once
#include <tandem/core/graph/tensor.h>

namespace tandem {

/// Activations. Each is one pointwise expression; the result has the shape and dtype of `x`. Derivatives at
/// kinks are PyTorch's. (relu, gelu, tanh and sigmoid are single terms of an expression: see pointwise.h.)

/// x for x > 0, slope·x otherwise; the derivative at 0 is `slope`.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/// x·sigmoid(x), also called swish.
Tensor silu(const Tensor& x);
/// x for x > 0, α·(exp x − 1) otherwise; the derivative at 0 is α.
Tensor elu(const Tensor& x, double alpha = 1);
/// x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2: gelu's approximation in GPT-2.
Tensor gelu_tanh(const Tensor& x);
/// Scaled elu; keeps mean 0 and variance 1 (Klambauer et al. 2017).
Tensor selu(const Tensor& x);
/// min(max(x + 3, 0), 6)/6; the derivative at ±3 is 0.
Tensor hard_sigmoid(const Tensor& x);
/// x·hard_sigmoid(x); the derivative is 0 at −3 and 1 at 3.
Tensor hard_swish(const Tensor& x);

}  // namespace tandem
