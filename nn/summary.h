#pragma once
#include <string>

#include <tandem/core/graph/graph.h>
#include <tandem/nn/module.h>

namespace tandem::nn {

/// A model, as it is (training or evaluating), on an input of such a type, as a table: a line for each module
/// that computes, in order, with the type of the last value that others use of it, its parameters that are
/// trained and what else it keeps (frozen parameters, buffers), the floating-point operations of its forward
/// (a multiply-add counting two) and the bytes of what it makes; then the sums. Modules below others are
/// named by their paths; operations outside of any are "(model)". Throws Error before `initialize` or `load`,
/// and where the input does not fit.
std::string summary(Module& model, const TensorType& input);
/// The same of what was traced, of a model that takes something else.
std::string summary(const engine::Graph& forward);

}  // namespace tandem::nn
