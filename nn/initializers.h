#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include <tandem/core/graph/tensor.h>

namespace tandem::nn {

/// `in`: how many inputs each output of a layer sums over. `out`: how many outputs each input goes to; of a
/// layer in groups, as if it had one, which is how PyTorch counts it.
struct Fans {
  std::int64_t in = 0, out = 0;
};

/// Makes a layer's initial weights from the parameter's type, its fans and path, and the model's seed.
/// The initializers below throw Error if a fan that they divide by is 0.
using Initializer =
    std::function<Tensor(const TensorType& type, Fans fans, const std::string& path, std::uint64_t seed)>;

/// Variance gain²/fan_in; gain² = 2 for relu (He et al. 2015).
Initializer kaiming_uniform(double gain = 1.4142135623730951);
Initializer kaiming_normal(double gain = 1.4142135623730951);
/// Variance gain²/fan_out: keeps the variance of gradients, as torchvision's convolutions do.
Initializer kaiming_normal_by_outputs(double gain = 1.4142135623730951);
Initializer normal(double deviation);
Initializer constant(double value);
/// Variance 2·gain²/(fan_in + fan_out) (Glorot & Bengio 2010).
Initializer xavier_uniform(double gain = 1);
Initializer xavier_normal(double gain = 1);
/// Variance 1/fan_in, which SELU needs (Klambauer et al. 2017).
Initializer lecun_normal();
/// Normal; values more than `cut` deviations from 0 are drawn again.
Initializer truncated_normal(double deviation, double cut = 2);
/// Uniform in ±1/√fan_in: the default of the layers.
Initializer default_uniform();

}  // namespace tandem::nn
