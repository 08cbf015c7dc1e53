#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include <tandem/core/base/error.h>

#include <tandem/nn/module.h>

namespace tandem::nn {

class SafetensorsFile;

struct LoadOptions {
  /// Loads the tensors that fit, and leaves the rest of the model (such as a new head) unchanged.
  bool partial = false;
  /// Also accepts other floating-point types, and rounds them to nearest.
  bool convert = true;
};

/// The differences between a file and a model, by name in the file.
struct WeightsReport {
  std::string library{};                ///< whose names the file has (FileLayout); empty: the model's own
  std::vector<std::string> missing;     ///< the model has it, the file does not
  std::vector<std::string> unexpected;  ///< the file has it, the model does not
  std::vector<std::string>
      mismatched;  ///< "head.weight: f32[10, 64], the model's f32[100, 64]": the file's type comes first
};

/// The file is valid, but has weights of another model.
class WeightsMismatch : public Error {
 public:
  using Error::Error;
};

/// Loads a module's weights from a safetensors file with the names and layouts of PyTorch, or of another
/// library that the module knows (Module::file_layouts): the one that fits best. Weights of another
/// floating-point type are converted, rounded to nearest. Batch norm's num_batches_tracked is not used.
/// Throws WeightsMismatch listing all that is missing, unexpected or mismatched; with `partial`, throws only
/// if nothing fits or a parameter would be left without contents. If it throws, the model is unchanged.
WeightsReport load_weights(ModuleBase& module, const std::string& file, const LoadOptions& options = {});
/// Returns the state that `load_weights` would load, by path. The module is unchanged, and need not be
/// initialized.
StateDict read_weights(ModuleBase& module, const std::string& file, const LoadOptions& options = {});

/// How a file fits a module.
struct WeightsFit {
  std::size_t tensors = 0;      ///< of the file that `load_weights` could load
  std::size_t names = 0;        ///< of the file's tensors that the module has too, of any size
  std::size_t differences = 0;  ///< tensors that are missing, unexpected, or of another size
};
WeightsFit fit_of(ModuleBase& module, const SafetensorsFile& file);

/// Writes a safetensors file with the module's names and the layouts of PyTorch, or, if `library` is not
/// empty, with those of that library. An existing file is replaced when the new one is complete. Throws Error
/// naming the libraries that the module knows (Module::file_layouts).
void save_weights(ModuleBase& module, const std::string& file, const std::string& library = "");

}  // namespace tandem::nn
