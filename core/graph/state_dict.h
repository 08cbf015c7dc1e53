#pragma once
#include <span>
#include <vector>

#include <tandem/core/graph/tensor.h>

namespace tandem {

/// The states of several models, by path, as the state of their batched graph: (models, …) for every tensor;
/// one model's is returned as it is. Throws Error naming a path that the models do not share.
std::map<std::string, Tensor> stack_states(std::span<const std::map<std::string, Tensor>> models);

/// What one model, from 0, has of a stacked state. Throws Error where it has no axis of so many models.
Tensor unstack_state(const Tensor& stacked, std::int64_t model, std::int64_t models);

/// The inverse: each model's state by itself. Throws Error naming a state that has no axis of so many models.
std::vector<std::map<std::string, Tensor>> unstack_states(const std::map<std::string, Tensor>& stacked,
                                                          std::int64_t models);

}  // namespace tandem
