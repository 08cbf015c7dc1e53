#pragma once
#include <span>
#include <vector>

#include <tandem/core/graph/tensor.h>

namespace tandem {

/// Stacks the states of several models, by path, into the state of their vmapped graph: each tensor becomes
/// (models, …). One model's state is returned unchanged. Throws Error naming a path in which they differ.
StateDict stack_states(std::span<const StateDict> models);

/// Returns the part of `model`, from 0, of a stacked tensor. Throws Error if it has no axis of `models`.
Tensor unstack_state(const Tensor& stacked, std::int64_t model, std::int64_t models);

/// The inverse: returns the state of each model. Throws Error naming a state without an axis of `models`.
std::vector<StateDict> unstack_states(const StateDict& stacked, std::int64_t models);

}  // namespace tandem
