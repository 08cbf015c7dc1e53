#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <tandem/nn/module.h>
#include <tandem/nn/safetensors.h>

namespace tandem::nn {

// Names are PyTorch's already; what differs in PyTorch's files is where channels lie
// (Parameter::channels_last), and that they also count batches (Module::torch_counters).

/// What PyTorch's files have for a parameter: (O,H,W,I) is (O,I,H,W) there, and the columns of a matrix that
/// follows a flattening are in that order.
TensorType torch_type(const Parameter& parameter);
/// A value of the parameter as PyTorch's files have it, and back.
Tensor to_torch(const Parameter& parameter, const Tensor& value);
Tensor from_torch(const Parameter& parameter, const Tensor& value);

/// A module's state as PyTorch's `state_dict` would have it after so many batches. Throws Error where
/// `state`, such as `module.state()` or a Session's, lacks a parameter; what else it holds is left out. Of
/// the stacked state of several `models` it is that of one. The sources share `state`, which must outlive
/// them.
std::map<std::string, TensorSource> torch_sources(Module& module, const StateDict& state,
                                                  std::int64_t batches, std::int64_t model = 0,
                                                  std::int64_t models = 1);
/// The same, all at once.
StateDict torch_state(Module& module, const StateDict& state, std::int64_t batches);

}  // namespace tandem::nn
