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

namespace {

constexpr int kElementBits = 3, kArgumentBits = 2, kDraws = 1 + kElementBits + kArgumentBits;

// Each draw but the first turns the directions of half of the elements, or of half of the arguments. So two
// neighbouring elements, or two of the first four arguments, move apart at least once: a difference of nearly
// equal terms, which stays if both move alike, shows its effect.
bool is_turned(int draw, std::int64_t element, std::int64_t argument) {
  if (draw == 0) return false;
  const int bit = draw - 1;
  return bit < kElementBits ? element >> bit & 1 : argument >> (bit - kElementBits) & 1;
}

}  // namespace

std::vector<double> effect_of_rounding(const TracedCase& t, const std::map<ValueId, Tensor>& arguments,
                                       const std::vector<std::vector<double>>& values, double rounding,
                                       std::mt19937_64& rng) {
  std::map<ValueId, std::vector<char>> up;  // in the first draw
  for (const auto& [v, tensor] : arguments)
    for (std::int64_t i = 0; tensor.dtype() == DType::f64 && i < tensor.elements(); ++i)
      up[v].push_back(draw_bool(rng, 0.5));
  std::vector<double> effect(values.size(), 0.0);
  for (int draw = 0; draw < kDraws; ++draw) {
    std::map<ValueId, Tensor> rounded;
    std::int64_t argument = 0;
    for (const auto& [v, tensor] : arguments) {
      rounded[v] = convert(tensor, tensor.type());
      for (std::int64_t i = 0; i < std::ssize(up[v]); ++i) {
        const bool goes_up = (up[v][static_cast<std::size_t>(i)] != 0) != is_turned(draw, i, argument);
        rounded[v].as<double>()[i] *= goes_up ? 1 + rounding : 1 - rounding;
      }
      ++argument;
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
