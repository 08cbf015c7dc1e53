#pragma once
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include <tandem/core/base/json_input.h>
#include <tandem/nn/models/whole_networks.h>

namespace tandem::apps {

/// A network in the size of its paper, by name, as a command takes it.
struct NetworkChoice {
  std::string network, purpose;
};
void add_network_options(CLI::App& command, NetworkChoice& choice);
/// Returns the purpose that was given, or the only one that the network has. Throws Error listing the
/// purposes if it has several.
std::string purpose_of(const NetworkChoice& choice);
/// Reads a config.json.
engine::JsonInput read_config(const std::string& file);
/// Makes the network; its sizes are those of a config.json of transformers if a file is named.
nn::WholeNetwork make(const NetworkChoice& choice, std::int64_t samples, const std::string& config = {});

}  // namespace tandem::apps
