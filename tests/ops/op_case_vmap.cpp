// Cases under their vmap rules.
#include <algorithm>
#include <cstring>
#include <set>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/mapped.h>

#include "op_case_test.h"

namespace tandem::testing {
using namespace engine;

VmappedCase vmap_case(const TracedCase& t, const std::vector<bool>& mask, std::int64_t models) {
  VmappedCase mapped;
  Trace trace(mapped.graph);
  if (!t.graph.nodes().empty()) trace.set_tag(t.graph.node(0).tag);
  std::unordered_map<ValueId, Replayed> values;
  const auto argument = [&](ValueId v, bool is_mapped) {
    TensorType type = t.graph.type(v);
    if (is_mapped) type.shape.insert(type.shape.begin(), models);
    const ValueId id = mapped.graph.add_value(type);
    values[v] = {trace.tensor(id), is_mapped};
    mapped.arguments[v] = {id, is_mapped};
  };
  for (std::size_t i = 0; i < t.inputs.size(); ++i) argument(t.inputs[i], mask[i]);
  for (ValueId v : t.cotangents) argument(v, true);
  replay_mapped(t.graph, models, values);
  for (const auto& [v, replayed] : values) mapped.values[v] = {trace.value(replayed.tensor), replayed.mapped};
  return mapped;
}

std::map<ValueId, Tensor> stack_arguments(const VmappedCase& mapped,
                                          const std::vector<std::map<ValueId, Tensor>>& models) {
  std::map<ValueId, Tensor> result;
  for (const auto& [v, to] : mapped.arguments) {
    Tensor stacked = Tensor::empty(mapped.graph.type(to.first));
    auto* data = static_cast<std::byte*>(stacked.data());
    for (const auto& arguments : models) {
      const Tensor& mine = arguments.at(v);
      std::memcpy(data, mine.data(), static_cast<std::size_t>(mine.type().bytes()));
      if (!to.second) break;
      data += mine.type().bytes();
    }
    result[to.first] = stacked;
  }
  return result;
}

std::vector<std::vector<bool>> vmap_masks(std::size_t inputs) {
  std::set<std::vector<bool>> masks;
  for (std::size_t bits = 1; bits < std::size_t{1} << inputs; ++bits) {
    std::vector<bool> mask;
    for (std::size_t i = 0; i < inputs; ++i) mask.push_back(bits >> i & 1);
    const auto count = static_cast<std::size_t>(std::count(mask.begin(), mask.end(), true));
    if (inputs <= 3 || count == 1 || count + 1 >= inputs) masks.insert(mask);
  }
  return {masks.begin(), masks.end()};
}

std::string mask_name(const std::vector<bool>& mask) {
  std::string name;
  for (bool b : mask) name += b ? '1' : '0';
  return name;
}

bool refuses_derivative(const Graph& original) {
  Graph graph = original;
  Trace trace(graph);
  for (const NodeId id : original.nodes().ids()) {
    const Node& node = original.node(id);
    Tensors inputs, outputs, grads;
    std::vector<bool> needed;
    for (ValueId v : node.inputs) {
      inputs.push_back(trace.tensor(v));
      needed.push_back(is_floating(inputs.back().dtype()));
    }
    for (ValueId v : node.outputs) {
      outputs.push_back(trace.tensor(v));
      if (is_floating(outputs.back().dtype())) grads = outputs;
    }
    if (grads.empty() || std::find(needed.begin(), needed.end(), true) == needed.end())
      return true;  // integers
    try {
      grads = node.op->vjp({inputs, outputs, grads, needed});
      if (std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); })) return true;
    } catch (const NoRule&) {
      return true;
    }
  }
  return false;
}

}  // namespace tandem::testing
