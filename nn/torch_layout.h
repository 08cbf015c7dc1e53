#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <tandem/nn/file_layout.h>
#include <tandem/nn/module.h>
#include <tandem/nn/safetensors.h>

namespace tandem::nn {

// Names are the same as PyTorch's. PyTorch's files differ in two ways: the order of the axes
// (Parameter::channels_last), and their batch counters (Module::torch_counters). A FileLayout has the
// differences of other files.

/// Returns a parameter's type in PyTorch's files: (O,H,W,I) becomes (O,I,H,W). The columns of a matrix that
/// follows a flattened image have that order too.
TensorType torch_type(const Parameter& parameter);
/// Convert a value of the parameter to the layout of PyTorch's files, and back.
Tensor to_torch(const Parameter& parameter, const Tensor& value);
Tensor from_torch(const Parameter& parameter, const Tensor& value);

/// A tensor of a file, and the parameters, or parts of them, that it holds.
struct StoredTensor {
  struct Piece {
    std::string path;
    Parameter parameter;
    int part = 0, parts = 1;              ///< of the parameter's equal parts along the first axis
    int their_part = 0, their_parts = 1;  ///< of the tensor's
  };
  TensorType type;
  bool input_first = false;  ///< a matrix, transposed
  std::vector<Piece> pieces{};
};
/// Returns the module's layout for a library; the empty name has the module's own names. Throws Error naming
/// the libraries that the module knows.
FileLayout file_layout(const ModuleBase& module, const std::string& library);
/// Returns the tensors of a module's files, by name, without batch counters.
std::map<std::string, StoredTensor> stored_tensors(ModuleBase& module, const FileLayout& layout = {});
/// Returns the value of a tensor, given those of parameters by path.
Tensor to_file(const StoredTensor& stored, const std::function<Tensor(const std::string& path)>& value);
/// Copies a tensor's value into those of its parameters, by path, which have PyTorch's order of axes.
void from_file(const StoredTensor& stored, const Tensor& value, StateDict& parameters);

/// Returns a module's state as PyTorch's `state_dict` would have it after `batches` batches. `state` is, for
/// example, `module.state()` or a Session's state; its other entries are left out. If it stacks several
/// `models`, the result is the state of the one with index `model`. The sources refer to `state`, which must
/// outlive them. Throws Error if `state` lacks a parameter.
std::map<std::string, TensorSource> torch_sources(ModuleBase& module, const StateDict& state,
                                                  std::int64_t batches, std::int64_t model = 0,
                                                  std::int64_t models = 1, const FileLayout& layout = {});
/// Returns the same state with all tensors made.
StateDict torch_state(ModuleBase& module, const StateDict& state, std::int64_t batches);

}  // namespace tandem::nn
