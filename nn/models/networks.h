#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::nn {

/// Returns the names that `make_network` accepts; these networks take images of 32×32×3.
std::vector<std::string> network_names();
/// Makes a network, not yet initialized. Throws Error listing the known names if `name` is unknown.
std::unique_ptr<Module> make_network(const std::string& name, int classes);

/// A network in the size of its paper, and what it takes.
struct WholeNetwork {
  std::unique_ptr<ModuleBase> module;             ///< not yet initialized
  std::vector<TensorType> inputs{};               ///< of so many samples
  std::function<Tensor(const Tensors&)> forward;  ///< -> its scores
};

/// What whole networks are for: "cifar" (images of 32×32×3), "imagenet" (224×224×3 or 299×299×3), "text" (ids
/// of words), "clicks" (numbers and categories).
std::vector<std::string> network_purposes();
/// Returns the names of the networks for a purpose. Throws Error listing the purposes if there is none such.
std::vector<std::string> network_names(const std::string& purpose);
/// Makes a network for a purpose. Throws Error listing the names if there is none.
WholeNetwork make_network(const std::string& name, const std::string& purpose, std::int64_t samples);

}  // namespace tandem::nn
