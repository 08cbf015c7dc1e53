#pragma once
#include <string>
#include <vector>

#include <tandem/pipeline/partition.h>

namespace tandem::engine {

/// Returns the layers as JSON, as `read_layer_profile` reads them. What crosses a cut is the larger one of
/// both directions, and no time is shorter than a nanosecond.
std::string layer_profile_json(const std::vector<PipelineLayer>& layers);

/// Reads the layers of a network, without its weights, from a JSON file (docs/pipelines.md, "How it cuts").
/// Throws Error naming the file, and saying where it is malformed.
std::vector<PipelineLayer> read_layer_profile(const std::string& file);

}  // namespace tandem::engine
