#include <tandem/train/non_finite.h>

#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/ops/eager.h>

namespace tandem {
using namespace engine;
namespace {

Tensor filled(const InputOp& input, Host& host, std::int64_t batch) {
  Tensor t = Tensor::empty(input.type);
  host.fill({input.input, t.type(), batch, 0, {}, t.bytes()});
  return t;
}

}  // namespace

std::string first_non_finite(const Graph& forward, const StateDict& state, Host& host, std::int64_t batch,
                             const KernelTable& kernels) {
  const EagerBatch scope(batch);
  std::unordered_map<ValueId, const Node*> last_reader;
  for (const Node& n : forward.nodes())
    for (ValueId v : n.inputs) last_reader[v] = &n;
  std::unordered_map<ValueId, Tensor> value;
  for (const Node& n : forward.nodes()) {
    if (const auto* read = as<ReadOp>(n)) {
      const std::string& path = forward.state(read->state).path;
      value[n.outputs[0]] = state.at(path);
      if (!all_finite(state.at(path))) return fmt::format("the state '{}'", path);
    } else if (const auto* input = as<InputOp>(n)) {
      value[n.outputs[0]] = filled(*input, host, batch);
    } else if (!as<AssignOp>(n) && !as<ResultOp>(n)) {
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
