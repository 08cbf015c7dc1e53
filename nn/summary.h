#pragma once
#include <functional>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/nn/module.h>

namespace tandem::nn {

/// Returns a table of a model in its current mode (training or evaluation) on an input of this type. Each
/// module that computes has a line, in order: its path ("(model)" for ops outside all modules), the type of
/// its last value that other modules use, its trained elements, its other elements (frozen parameters,
/// buffers), the floating-point operations of its forward (a multiply-add counts two), and the megabytes of
/// the values that it makes. The last line has the sums. Throws Error before `initialize` or `load`, and if
/// the input does not fit.
std::string summary(Module& model, const TensorType& input);
/// Returns the same table of a model with other inputs, which `forward` calls:
///
///     nn::summary([&](const Tensors& in) { return net(in[0], in[1]); }, {ids, features})
std::string summary(const std::function<Tensor(const Tensors& inputs)>& forward,
                    const std::vector<TensorType>& inputs);
/// Returns the same table of a traced graph.
std::string summary(const engine::Graph& forward);

}  // namespace tandem::nn
