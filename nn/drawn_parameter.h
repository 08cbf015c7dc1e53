#pragma once
#include <string>
#include <utility>

#include <tandem/nn/initializers.h>
#include <tandem/nn/module.h>

namespace tandem::nn {

/// Returns a parameter of the default dtype whose first contents an Initializer draws.
inline Parameter drawn_parameter(const std::string& name, Shape shape, Fans fans, Initializer init) {
  return {.name = name,
          .tensor = Tensor::zeros({default_dtype(), std::move(shape)}),
          .initialize = [fans, init = std::move(init)](const TensorType& type, const std::string& path,
                                                       std::uint64_t seed) {
            return init(type, fans, path, seed);
          }};
}

}  // namespace tandem::nn
