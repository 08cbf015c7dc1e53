#include <tandem/core/graph_ops.h>

#include <cstring>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/host.h>
#include <tandem/core/kernel.h>
#include <tandem/core/memory.h>
#include <tandem/core/rng.h>
#include <tandem/core/tensor.h>

namespace tandem {
namespace {

TensorType with_models(const TensorType& type, std::int64_t models) {
  TensorType batched = type;
  batched.shape.insert(batched.shape.begin(), models);
  return batched;
}

KernelPtr make_input(const KernelSpec& spec) {
  const auto name = static_cast<const Input&>(spec.op).input;
  const auto bytes = static_cast<std::size_t>(spec.outputs[0].bytes());
  const bool per_model = static_cast<const Input&>(spec.op).per_model;  // few bytes, easily left out
  return make_kernel([name, bytes, per_model, microbatch = spec.tag.microbatch](const Launch& l) {
    if (per_model) tandem::poison(l.out[0], static_cast<std::int64_t>(bytes));
    l.rank->host->fill(name, l.batch, microbatch, *l.rank, {static_cast<std::byte*>(l.out[0]), bytes});
  });
}

KernelPtr make_result(const KernelSpec& spec) {
  const auto name = static_cast<const Result&>(spec.op).result;
  const auto bytes = static_cast<std::size_t>(spec.inputs[0].bytes());
  return make_kernel([name, bytes](const Launch& l) {
    l.rank->host->deliver(name, l.batch, *l.rank, {static_cast<const std::byte*>(l.in[0]), bytes});
  });
}

KernelPtr make_constant(const KernelSpec& spec) {
  const auto* constant = static_cast<const Constant*>(&spec.op);
  return make_kernel(
      [bytes = constant->bytes](const Launch& l) { std::memcpy(l.out[0], bytes.data(), bytes.size()); });
}

// Where the planner could not place the value in the state's memory: input 0 is copied to output 0.
KernelPtr make_assign(const KernelSpec& spec) {
  const auto bytes = static_cast<std::size_t>(spec.inputs[0].bytes());
  return make_kernel([bytes](const Launch& l) { std::memcpy(l.out[0], l.in[0], bytes); });
}

}  // namespace

std::string Read::attributes() const { return fmt::format("slot={} age={}", slot, age); }
Tensors Read::vjp(const VjpArgs&) const { return {}; }
Tensors Read::batch(const BatchArgs& args) const {
  return apply_op(std::make_shared<Read>(slot, age, with_models(type, args.models)), {});
}

std::string Assign::attributes() const { return fmt::format("slot={}", slot); }
Types Assign::infer(std::span<const TensorType> inputs) const {
  if (inputs.size() != 1) throw Error("takes one value");
  return {};
}
Tensors Assign::vjp(const VjpArgs&) const { return {Tensor()}; }
Tensors Assign::batch(const BatchArgs& args) const {
  return apply_op(std::make_shared<Assign>(slot), args.inputs);
}

std::string Input::attributes() const { return fmt::format("name={} per_model={}", input, int{per_model}); }
Tensors Input::vjp(const VjpArgs&) const { return {}; }
Tensors Input::batch(const BatchArgs& args) const {
  return apply_op(std::make_shared<Input>(input, with_models(type, args.models), per_model), {});
}
Work Input::cost(std::span<const TensorType> in, std::span<const TensorType> out) const {
  return streaming_work(in, out, 0);
}

Tensors Result::vjp(const VjpArgs&) const { return {Tensor()}; }
Tensors Result::batch(const BatchArgs& args) const {
  return apply_op(std::make_shared<Result>(result), args.inputs);
}

std::string Constant::attributes() const {
  const std::string_view contents(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return fmt::format("type={} hash={:016x}", to_string(type), fnv1a(contents));
}
Tensors Constant::vjp(const VjpArgs&) const { return {}; }
Tensors Constant::batch(const BatchArgs&) const {
  no_rule(*this, "batch", "a constant is shared by all models");
}
Work Constant::cost(std::span<const TensorType> in, std::span<const TensorType> out) const {
  return streaming_work(in, out, 0);
}

void add_graph_op_kernels(KernelTable& table) {
  table.add("input", make_input);
  table.add("result", make_result);
  table.add("constant", make_constant);
  table.add("assign", make_assign);
}

}  // namespace tandem
