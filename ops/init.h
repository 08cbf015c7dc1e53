#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/graph/tensor.h>

namespace tandem {

/// Initial weights, computed on the host. What is drawn depends on `seed`, `path` (the parameter's,
/// "layer1.0.conv2.weight") and the element alone, so it is the same whatever else a model holds.

/// Uniform in [low, high).
Tensor uniform(TensorType type, double low, double high, const std::string& path, std::uint64_t seed);
Tensor normal(TensorType type, double mean, double deviation, const std::string& path, std::uint64_t seed);

/// Normal around 0, an element drawn again while it is more than `cut` deviations away. Throws Error unless
/// `cut` is positive.
Tensor truncated_normal(TensorType type, double deviation, double cut, const std::string& path,
                        std::uint64_t seed);

}  // namespace tandem
