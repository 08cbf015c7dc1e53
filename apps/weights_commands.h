#pragma once
#include <string>

#include <CLI/CLI.hpp>

#include "network_choice.h"

namespace tandem::apps {

/// A network and its weights; a config.json beside them gives other sizes than its paper's.
struct NetworkWeights : NetworkChoice {
  std::string weights;  ///< a safetensors file, or a directory with model.safetensors and maybe config.json
};

struct ForwardOptions : NetworkWeights {
  std::string batch, output;
  std::string dtype = "f32";  ///< of weights and arithmetic: f32 or f64
  bool gradients = false;
};
void add_forward_options(CLI::App& command, ForwardOptions& options);
/// Runs a network on a batch of a file, in evaluation mode, and writes what it gives.
void forward(const ForwardOptions& options);

struct ConvertOptions : NetworkWeights {
  std::string output, names;
};
void add_convert_options(CLI::App& command, ConvertOptions& options);
/// Rewrites weights with the names and layouts of a library.
void convert_weights(const ConvertOptions& options);

}  // namespace tandem::apps
