// The arguments and results of a traced case, and how exactly the arguments determine the results.
#include <cmath>

#include <tandem/core/base/convert.h>
#include <tandem/ops/kernels.h>

#include "op_case_test.h"

namespace tandem::testing {
using namespace engine;

Tensor convert(const Tensor& t, const TensorType& type) {
  Tensor result = Tensor::empty(type);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    store_element(type.dtype, result.data(), i, load_element(t.dtype(), t.data(), i));
  return result;
}

std::map<ValueId, Tensor> draw_arguments(const OpCase& c, const TracedCase& t, std::mt19937_64& rng) {
  std::map<ValueId, Tensor> arguments;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    arguments[t.inputs[i]] = convert(draw(c.inputs[i], i, c.inputs.size(), rng), t.graph.type(t.inputs[i]));
  for (ValueId v : t.cotangents) arguments[v] = draw({t.graph.type(v)}, 0, 1, rng);
  return arguments;
}

std::map<ValueId, Tensor> as_types_of(const TracedCase& to, const TracedCase& from,
                                      const std::map<ValueId, Tensor>& args) {
  std::map<ValueId, Tensor> result;
  for (std::size_t i = 0; i < from.inputs.size(); ++i)
    result[to.inputs[i]] = convert(args.at(from.inputs[i]), to.graph.type(to.inputs[i]));
  for (std::size_t i = 0; i < from.cotangents.size(); ++i)
    result[to.cotangents[i]] = convert(args.at(from.cotangents[i]), to.graph.type(to.cotangents[i]));
  return result;
}

std::vector<ValueId> results_of(const TracedCase& t) {
  std::vector<ValueId> results = t.outputs;
  for (ValueId v : t.gradients)
    if (v >= 0) results.push_back(v);
  return results;
}

std::vector<double> values_of(const Graph& graph, const Contents& contents, ValueId v) {
  return to_doubles(graph.type(v).dtype, contents.at(v));
}

std::vector<double> effect_of_rounding(const TracedCase& t, const std::map<ValueId, Tensor>& arguments,
                                       const std::vector<std::vector<double>>& values, double rounding,
                                       std::mt19937_64& rng) {
  constexpr int kDraws = 4;
  std::vector<double> effect(values.size(), 0.0);
  for (int draw = 0; draw < kDraws; ++draw) {
    std::map<ValueId, Tensor> rounded;
    for (const auto& [v, tensor] : arguments) {
      rounded[v] = convert(tensor, tensor.type());
      for (std::int64_t i = 0; tensor.dtype() == DType::f64 && i < tensor.elements(); ++i)
        rounded[v].as<double>()[i] *= draw_bool(rng, 0.5) ? 1 + rounding : 1 - rounding;
    }
    const Contents contents = run_graph(t.graph, rounded, {reference_kernels()});
    const auto ids = results_of(t);
    for (std::size_t i = 0; i < ids.size(); ++i)
      effect[i] = std::hypot(effect[i], difference(values_of(t.graph, contents, ids[i]), values[i]));
  }
  for (double& e : effect) e /= std::sqrt(kDraws);
  return effect;
}

}  // namespace tandem::testing
