#pragma once
#include <string>
#include <vector>

#include <tandem/pipeline/partition.h>

namespace tandem::engine {

/// Reads the layers of a network, without its weights, from a JSON file (docs/pipelines.md, "How it cuts").
/// Throws Error naming the file, and saying where it is malformed.
std::vector<PipelineLayer> read_layer_profile(const std::string& file);

}  // namespace tandem::engine
