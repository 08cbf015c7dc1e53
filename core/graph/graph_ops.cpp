#include <tandem/core/graph/graph_ops.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/trace.h>

namespace tandem::engine {

namespace {

std::string text_of(const ModelRange& models) {
  return models.is_all() ? "" : fmt::format(" models={}+{}", models.first, models.count);
}

}  // namespace

Tensors BoundaryOp::vjp(const VjpArgs& args) const { return Tensors(args.inputs.size()); }

std::string ReadOp::attributes() const {
  return fmt::format("state={} age={}{}", state, age, text_of(models));
}
Tensors ReadOp::vmap(const VmapArgs& args) const {
  return Trace::current()->apply(std::make_shared<ReadOp>(state, age, with_models(type, args.models)), {});
}

std::string AssignOp::attributes() const { return fmt::format("state={}{}", state, text_of(models)); }
Types AssignOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  return {};
}
Tensors AssignOp::vmap(const VmapArgs& args) const {
  return Trace::current()->apply(std::make_shared<AssignOp>(state), args.inputs);
}

std::int64_t offset_of(const ModelRange& models, const TensorType& state) {
  return models.is_all() ? 0 : models.first * (state.bytes() / state.shape.at(0));
}
bool is_part(const TensorType& value, const ModelRange& models, const TensorType& state) {
  if (models.is_all()) return value == state;
  if (state.shape.empty() || models.first + models.count > state.shape[0]) return false;
  TensorType part = state;
  part.shape[0] = models.count;
  if (value == part) return true;
  part.shape.erase(part.shape.begin());
  return models.count == 1 && value == part;
}

std::pair<std::int64_t, std::int64_t> BatchRange::of(std::int64_t batch) const {
  const std::int64_t begin = std::max<std::int64_t>(0, batch + first);
  return {begin, std::max(begin, (is_cut ? batch + first : begin) + count)};
}

std::string InputOp::attributes() const {
  return fmt::format(
      "name={} per_model={}{}{}", input, int{per_model},
      sum_of ? fmt::format(" sum_of={}+{}{}", sum_of->first, sum_of->count, sum_of->is_cut ? " cut" : "")
             : "",
      text_of(models));
}
Tensors InputOp::vmap(const VmapArgs& args) const {
  return Trace::current()->apply(
      std::make_shared<InputOp>(input, with_models(type, args.models), per_model, sum_of), {});
}

std::string ResultOp::attributes() const { return "name=" + result + text_of(models); }
Tensors ResultOp::vmap(const VmapArgs& args) const {
  return Trace::current()->apply(std::make_shared<ResultOp>(result), args.inputs);
}

Types DetachOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  return {inputs[0]};
}
Tensors DetachOp::vmap(const VmapArgs& args) const {
  return Trace::current()->apply(std::make_shared<DetachOp>(), args.inputs);
}

std::string ConstantOp::attributes() const {
  const std::string_view contents(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return fmt::format("type={} hash={:016x}", to_string(type), fnv1a(contents));
}
Tensors ConstantOp::vmap(const VmapArgs&) const {
  no_rule(*this, "vmap", "a constant is shared by all models");
}

bool is_leaf(const Node& node) { return as<ReadOp>(node) || as<InputOp>(node) || as<ConstantOp>(node); }

}  // namespace tandem::engine
