#include <tandem/core/graph/op.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

std::string_view name_of(LaneKind kind) {
  switch (kind) {
    case LaneKind::compute: return "compute";
    case LaneKind::collective: return "collective";
    case LaneKind::send: return "send";
    case LaneKind::receive: return "receive";
    case LaneKind::copy_out: return "copy-out";
    case LaneKind::copy_in: return "copy-in";
    case LaneKind::timer: return "timer";
  }
  return "?";
}

void no_rule(const Op& op, std::string_view rule, std::string_view why) {
  throw NoRule(fmt::format("{} has no {} rule: {}", op.name(), rule, why));
}

Tensor take_sum(const VjpArgs& args, std::size_t i) {
  return args.sums ? std::exchange((*args.sums)[i], Tensor()) : Tensor();
}

void require_inputs(TypesView inputs, std::size_t count) {
  if (inputs.size() != count)
    throw Error(
        fmt::format("takes {}, not {}", counted(static_cast<std::int64_t>(count), "input"), inputs.size()));
}

void require_type(std::string_view what, const TensorType& actual, const TensorType& expected) {
  if (actual != expected)
    throw Error(fmt::format("{} is {}; it must be {}", what, to_string(actual), to_string(expected)));
}

const TensorType& only_input(TypesView inputs) {
  require_inputs(inputs, 1);
  return inputs[0];
}

Work streaming_work(TypesView inputs, TypesView outputs, double flops_per_output) {
  Work work;
  for (const auto& t : inputs) work.bytes += static_cast<double>(t.bytes());
  for (const auto& t : outputs) {
    work.bytes += static_cast<double>(t.bytes());
    work.flops += flops_per_output * static_cast<double>(t.elements());
  }
  return work;
}

Work StreamingOp::cost(TypesView inputs, TypesView outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  if (!inputs.empty()) work.flops = flops_per_element() * static_cast<double>(inputs[0].elements());
  return work;
}

std::string signature(const Op& op, TypesView inputs) {
  return fmt::format("{}{{{}}}({})", op.name(), op.attributes(), to_string(inputs));
}

}  // namespace tandem::engine
