#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/graph/tensor.h>

namespace tandem::init {

/// Initial weights, drawn on the host. A draw depends only on `seed`, on `path` (the parameter's name, as in
/// "layer1.0.conv2.weight") and on the element's number, so other parts of a model do not change it.

/// Uniform in [low, high), before it is rounded to the type.
Tensor uniform(TensorType type, double low, double high, const std::string& path, std::uint64_t seed);
Tensor normal(TensorType type, double mean, double deviation, const std::string& path, std::uint64_t seed);

/// Normal around 0; draws an element again while it is more than `cut` deviations from 0. Throws Error unless
/// `cut` is positive.
Tensor truncated_normal(TensorType type, double deviation, double cut, const std::string& path,
                        std::uint64_t seed);

}  // namespace tandem::init
