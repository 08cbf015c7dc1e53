#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/nn/module.h>

namespace tandem::nn {

/// A module that computes, in a traced forward.
struct ModuleSummary {
  std::string module;        ///< its path; empty for ops outside all modules
  TensorType output{};       ///< of its last value that other modules use
  std::int64_t trained = 0;  ///< elements
  std::int64_t kept = 0;     ///< other elements: frozen parameters, buffers
  double flops = 0;          ///< floating-point operations of its forward; a multiply-add counts two
  std::int64_t bytes = 0;    ///< of the values that it makes
};
/// Returns the modules of a traced forward in order; `total` adds them up.
std::vector<ModuleSummary> module_summaries(const engine::Graph& forward);
ModuleSummary total(const std::vector<ModuleSummary>& modules);
/// Returns the graph of a forward with inputs of these types.
engine::Graph traced_forward(const std::function<Tensors(const Tensors& inputs)>& forward,
                             const std::vector<TensorType>& inputs);

/// Returns a table of a model in its current mode (training or evaluation) on an input of this type. Each
/// module that computes has a line, in order, as ModuleSummary says; "(model)" are the ops outside all
/// modules. The last line has the sums. Throws Error before `initialize` or `load`, and if the input does not
/// fit.
std::string summary(Module& model, const TensorType& input);
/// Returns the same table of a model with other inputs, which `forward` calls:
///
///     nn::summary([&](const Tensors& in) { return net(in[0], in[1]); }, {ids, features})
std::string summary(const std::function<Tensor(const Tensors& inputs)>& forward,
                    const std::vector<TensorType>& inputs);
/// Returns the same table of a traced graph.
std::string summary(const engine::Graph& forward);

}  // namespace tandem::nn
