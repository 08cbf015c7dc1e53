#pragma once
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::nn {

/// Returns the names that `make_network` accepts; these networks take images of 32×32×3.
std::vector<std::string> network_names();
/// Makes a network, not yet initialized. Throws Error listing the known names if `name` is unknown.
std::unique_ptr<Module> make_network(const std::string& name, int classes);

}  // namespace tandem::nn
