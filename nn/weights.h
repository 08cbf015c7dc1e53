#pragma once
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::nn {

struct LoadOptions {
  /// Loads the tensors that fit, and leaves the rest of the model (such as a new head) unchanged.
  bool partial = false;
  /// Also accepts other floating-point types, and rounds them to nearest.
  bool convert = true;
};

/// The differences between a file and a model, by path.
struct WeightsReport {
  std::vector<std::string> missing;     ///< the model has it, the file does not
  std::vector<std::string> unexpected;  ///< the file has it, the model does not
  std::vector<std::string>
      mismatched;  ///< "head.weight: f32[10, 64], the model's f32[100, 64]": the file's type comes first
};

/// Loads a module's weights from a safetensors file with the names and layouts of PyTorch. Weights of another
/// floating-point type are converted, rounded to nearest. Batch norm's num_batches_tracked is not used.
/// Throws Error listing all that is missing, unexpected or mismatched; with `partial`, throws only if nothing
/// fits or a parameter would be left without contents. If it throws, the model is unchanged.
WeightsReport load_weights(ModuleBase& module, const std::string& file, const LoadOptions& options = {});
/// Returns the state that `load_weights` would load, by path. The module is unchanged, and need not be
/// initialized.
StateDict read_weights(ModuleBase& module, const std::string& file, const LoadOptions& options = {});

/// Writes a safetensors file with the names and layouts of PyTorch. An existing file is replaced when the new
/// one is complete.
void save_weights(ModuleBase& module, const std::string& file);

}  // namespace tandem::nn
