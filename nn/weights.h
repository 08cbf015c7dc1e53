#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::nn {

struct LoadOptions {
  /// Take what fits, and leave the rest of the model as it is, for instance another head.
  bool partial = false;
  /// Take other floating-point types too, rounded to nearest.
  bool convert = true;
};

/// What a file and a model do not share, by path.
struct WeightsReport {
  std::vector<std::string> missing;     ///< in the file
  std::vector<std::string> unexpected;  ///< in the file, which the model has not
  std::vector<std::string>
      mismatched;  ///< "head.weight: f32[10, 64], the model's f32[100, 64]", as in the file
};

/// Loads a module's weights from a safetensors file with the names and layouts of PyTorch. Those of another
/// floating-point type are converted, rounded to nearest. Batch norm's num_batches_tracked is not used.
/// Throws Error listing all that is missing, unexpected and mismatched; with `partial` only where nothing
/// fits, or a parameter would be left without contents. A model is changed only where nothing is thrown.
WeightsReport load_weights(Module& module, const std::string& file, const LoadOptions& options = {});
/// What that would load, by path: the module, which need not have contents, is left as it is.
StateDict read_weights(Module& module, const std::string& file, const LoadOptions& options = {});

/// Writes such a file. One that is there is replaced when the new one is complete.
void save_weights(Module& module, const std::string& file);

}  // namespace tandem::nn
