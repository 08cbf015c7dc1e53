#include <tandem/plan/non_finite.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/eager.h>
#include <tandem/core/graph_ops.h>
#include <tandem/ops/element.h>

namespace tandem {
namespace {

Tensor filled(const Input& input, Host& host, std::int64_t batch) {
  Tensor t = Tensor::empty(input.type);
  host.fill(input.input, batch, 0, {}, {t.as<std::byte>(), static_cast<std::size_t>(input.type.bytes())});
  return t;
}

}  // namespace

bool all_finite(const Tensor& t) { return all_finite(t.type(), t.data()); }

bool all_finite(const TensorType& type, const void* data) {
  if (!is_floating(type.dtype)) return true;
  return visit_dtype(type.dtype, [&](auto zero) {
    using E = decltype(zero);
    const E* x = static_cast<const E*>(data);
    return std::all_of(x, x + type.elements(), [](E v) { return std::isfinite(static_cast<double>(v)); });
  });
}

std::string first_non_finite(const Graph& forward, const std::map<std::string, Tensor>& state, Host& host,
                             std::int64_t batch, const KernelTable& kernels) {
  const EagerBatch scope(batch);
  std::unordered_map<ValueId, const Node*> last_reader;
  for (const Node& n : forward.nodes())
    for (ValueId v : n.inputs) last_reader[v] = &n;
  std::unordered_map<ValueId, Tensor> value;
  for (const Node& n : forward.nodes()) {
    if (const auto* read = dynamic_cast<const Read*>(n.op.get())) {
      const std::string& path = forward.slot(read->slot).path;
      value[n.outputs[0]] = state.at(path);
      if (!all_finite(state.at(path))) return fmt::format("the state '{}'", path);
    } else if (const auto* input = dynamic_cast<const Input*>(n.op.get())) {
      value[n.outputs[0]] = filled(*input, host, batch);
    } else if (!dynamic_cast<const Assign*>(n.op.get()) && !dynamic_cast<const Result*>(n.op.get())) {
      Tensors in;
      for (ValueId v : n.inputs) in.push_back(value.at(v));
      const Tensors out = evaluate(kernels, n.op, in, n.tag);
      for (std::size_t o = 0; o < out.size(); ++o) {
        value[n.outputs[o]] = out[o];
        if (!all_finite(out[o]))
          return fmt::format(
              "{}{} in {}", n.op->label(), n.tag.phase == Phase::backward ? " of the backward pass" : "",
              n.tag.path.empty() ? "the model itself" : fmt::format("module '{}'", n.tag.path));
      }
    }
    for (ValueId v : n.inputs)
      if (last_reader.at(v) == &n) value.erase(v);
  }
  return "";
}

}  // namespace tandem
