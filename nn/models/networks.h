#pragma once
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::nn {

/// The networks for images of 32×32×3, by the names that programs take.
std::vector<std::string> network_names();
/// Not initialized. Throws Error naming the known ones.
std::unique_ptr<Module> make_network(const std::string& name, int classes);

}  // namespace tandem::nn
