#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/tensor.h>

namespace tandem {

/// Initial weights, computed on the host. What is drawn depends on `seed`, `path` (the parameter's,
/// "layer1.0.conv2.weight") and the element alone, so it is the same whatever else a model holds.

/// Uniform in [low, high).
Tensor uniform(TensorType type, double low, double high, const std::string& path, std::uint64_t seed);
Tensor normal(TensorType type, double mean, double deviation, const std::string& path, std::uint64_t seed);

/// Normal around 0, an element drawn again while it is more than `cut` deviations away.
Tensor truncated_normal(TensorType type, double deviation, double cut, const std::string& path,
                        std::uint64_t seed);

/// He et al. 2015: variance gain²/fan_in, with gain² = 2 for relu. Uniform in ±gain·√(3/fan_in).
Tensor kaiming_uniform(TensorType type, std::int64_t fan_in, const std::string& path, std::uint64_t seed,
                       double gain = 1.4142135623730951);
Tensor kaiming_normal(TensorType type, std::int64_t fan_in, const std::string& path, std::uint64_t seed,
                      double gain = 1.4142135623730951);
/// Glorot and Bengio 2010: uniform in ±√(6/(fan_in + fan_out)).
Tensor xavier_uniform(TensorType type, std::int64_t fan_in, std::int64_t fan_out, const std::string& path,
                      std::uint64_t seed);

}  // namespace tandem
