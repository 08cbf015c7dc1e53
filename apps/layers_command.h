#pragma once
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "network_choice.h"

namespace tandem::apps {

struct LayersOptions : NetworkChoice {
  std::string config{};                ///< a config.json with the network's sizes
  std::int64_t samples = 1;            ///< of a batch
  double gflops = 50, gigabytes = 10;  ///< per second: what the device computes, and moves to and from memory
};
void add_layers_options(CLI::App& command, LayersOptions& options);
/// Prints the layers of a network as `tandem plan pipeline` reads them (plan/layer_profile.h), with their
/// times on an ideal device: of each op the larger one of flops / rate and bytes / rate.
void print_layers(const LayersOptions& options);

}  // namespace tandem::apps
