#include <tandem/ops/collective.h>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

constexpr std::string_view kInsertedLater =
    "transfers are inserted after differentiation, and the backward pass gets its own";

void require_replicas(const Op& op, int replicas) {
  if (replicas < 1)
    throw Error(fmt::format("{} over {} replicas: at least 1 is needed", op.name(), replicas));
}

}  // namespace

AllReduceOp::AllReduceOp(int replicas) : replicas(replicas) { require_replicas(*this, replicas); }
std::string AllReduceOp::attributes() const { return fmt::format("replicas={}", replicas); }
Types AllReduceOp::infer(TypesView inputs) const {
  if (inputs.empty()) throw Error("takes one value or more");
  for (const TensorType& t : inputs) {
    if (t.dtype != inputs[0].dtype)
      throw Error(
          fmt::format("takes values of one element type, not {} and {}", to_string(inputs[0]), to_string(t)));
    if (t.dtype != DType::f32 && t.dtype != DType::f64 && t.dtype != DType::i32 && t.dtype != DType::i64)
      throw Error(fmt::format("ranks cannot sum {}: cast to f32 first", to_string(t)));
  }
  return {inputs.begin(), inputs.end()};
}
Tensors AllReduceOp::vjp(const VjpArgs& args) const {
  Tensors wanted;
  const auto is_wanted = [&](std::size_t i) { return args.needed[i] && args.grads[i].defined(); };
  for (std::size_t i = 0; i < args.grads.size(); ++i)
    if (is_wanted(i)) wanted.push_back(args.grads[i]);
  Tensors result(args.inputs.size());
  if (wanted.empty()) return result;
  const Tensors sums = all_reduce(wanted, replicas);
  for (std::size_t i = 0, next = 0; i < result.size(); ++i)
    if (is_wanted(i)) result[i] = sums[next++];
  return result;
}
Tensors AllReduceOp::vmap(const VmapArgs& args) const {
  if (contains(args.mapped, false))
    no_rule(*this, "vmap",
            "some of its values are shared by all models; reduce those in a separate all_reduce");
  return all_reduce(args.inputs, replicas);
}
Work AllReduceOp::cost(TypesView in, TypesView out) const { return streaming_work(in, out, replicas - 1); }
std::vector<Alias> AllReduceOp::may_alias(TypesView inputs) const {
  std::vector<Alias> aliases;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) aliases.push_back({i, i, Alias::in_place});
  return aliases;
}

AllGatherOp::AllGatherOp(int replicas) : replicas(replicas) { require_replicas(*this, replicas); }
std::string AllGatherOp::attributes() const { return fmt::format("replicas={}", replicas); }
Types AllGatherOp::infer(TypesView inputs) const {
  if (inputs.empty()) throw Error("takes one value or more");
  Types types(inputs.begin(), inputs.end());
  for (TensorType& t : types) t.shape.insert(t.shape.begin(), replicas);
  return types;
}
Tensors AllGatherOp::vjp(const VjpArgs&) const { no_rule(*this, "vjp", kInsertedLater); }
Tensors AllGatherOp::vmap(const VmapArgs&) const {
  no_rule(*this, "vmap", "it is inserted after the models are joined");
}
Work AllGatherOp::cost(TypesView in, TypesView out) const { return streaming_work(in, out, 0); }

std::string SendOp::attributes() const { return fmt::format("peer_device={}", peer_device); }
Types SendOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  return {};
}
Tensors SendOp::vjp(const VjpArgs&) const { no_rule(*this, "vjp", kInsertedLater); }

std::string ReceiveOp::attributes() const {
  return fmt::format("peer_device={} type={}", peer_device, to_string(type));
}
Types ReceiveOp::infer(TypesView inputs) const {
  if (!inputs.empty()) throw Error("takes no value");
  return {type};
}
Tensors ReceiveOp::vjp(const VjpArgs&) const { no_rule(*this, "vjp", kInsertedLater); }
Tensors ReceiveOp::vmap(const VmapArgs& args) const {
  return {receive(peer_device, with_models(type, args.models))};
}

Types BarrierOp::infer(TypesView inputs) const {
  if (!inputs.empty()) throw Error("takes no value");
  return {};
}

Tensors all_reduce(const Tensors& values, int replicas) {
  return apply_op(std::make_shared<AllReduceOp>(replicas), values);
}
Tensors all_gather(const Tensors& values, int replicas) {
  return apply_op(std::make_shared<AllGatherOp>(replicas), values);
}
void send(const Tensor& value, int peer_device) { apply_op(std::make_shared<SendOp>(peer_device), {value}); }
Tensor receive(int peer_device, TensorType type) {
  return apply_op1(std::make_shared<ReceiveOp>(peer_device, std::move(type)), {});
}
void barrier() { apply_op(std::make_shared<BarrierOp>(), {}); }

}  // namespace tandem::engine
