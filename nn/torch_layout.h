#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <tandem/nn/module.h>
#include <tandem/nn/safetensors.h>

namespace tandem::nn {

// Names are the same as PyTorch's. PyTorch's files differ in two ways: the order of the axes
// (Parameter::channels_last), and their batch counters (Module::torch_counters).

/// Returns a parameter's type in PyTorch's files: (O,H,W,I) becomes (O,I,H,W). The columns of a matrix that
/// follows a flattened image have that order too.
TensorType torch_type(const Parameter& parameter);
/// Convert a value of the parameter to the layout of PyTorch's files, and back.
Tensor to_torch(const Parameter& parameter, const Tensor& value);
Tensor from_torch(const Parameter& parameter, const Tensor& value);

/// Returns a module's state as PyTorch's `state_dict` would have it after `batches` batches. `state` is, for
/// example, `module.state()` or a Session's state; its other entries are left out. If it stacks several
/// `models`, the result is the state of the one with index `model`. The sources refer to `state`, which must
/// outlive them. Throws Error if `state` lacks a parameter.
std::map<std::string, TensorSource> torch_sources(ModuleBase& module, const StateDict& state,
                                                  std::int64_t batches, std::int64_t model = 0,
                                                  std::int64_t models = 1);
/// Returns the same state with all tensors made.
StateDict torch_state(ModuleBase& module, const StateDict& state, std::int64_t batches);

}  // namespace tandem::nn
