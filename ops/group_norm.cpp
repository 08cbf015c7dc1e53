#include <tandem/ops/group_norm.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

DType statistics_dtype(const TensorType& x) { return x.dtype == DType::f64 ? DType::f64 : DType::f32; }
TensorType channel_type(const TensorType& x) { return {statistics_dtype(x), {x.shape.back()}}; }
TensorType statistic_type(const TensorType& x, std::int64_t groups) {
  return {statistics_dtype(x), {x.shape[0], groups}};
}

void check_x(const TensorType& x, std::int64_t groups) {
  if (x.rank() < 2 || !is_floating(x.dtype) || x.elements() == 0)
    throw Error(fmt::format("x must be (N,…,C), floating and not empty, not {}", to_string(x)));
  if (groups < 1 || x.shape.back() % groups != 0)
    throw Error(fmt::format("{} channels do not split into {} groups", x.shape.back(), groups));
}

// (…,C) -> (rows,C)
Tensor rows_of(const Tensor& x) {
  if (x.type().rank() == 0 || x.elements() == 0)
    throw Error(fmt::format("{} has no last axis to normalize, or is empty", to_string(x.type())));
  return reshape(x, {x.elements() / x.size(-1), x.size(-1)});
}

Tensor normalized(std::int64_t groups, double epsilon, Tensors inputs) {
  const bool centered = inputs.size() == 3;
  return apply_op(std::make_shared<GroupNormOp>(groups, epsilon, centered), std::move(inputs))[0];
}

}  // namespace

GroupNormSize::GroupNormSize(const TensorType& x, std::int64_t groups)
    : samples(x.shape[0]),
      pixels(x.elements() / (x.shape[0] * x.shape.back())),
      channels(x.shape.back()),
      groups(groups) {}

std::string GroupNormOp::attributes() const {
  return fmt::format("groups={} epsilon={} centered={}", groups, epsilon, int{centered});
}
Types GroupNormOp::infer(TypesView inputs) const {
  if (inputs.size() != (centered ? 3 : 2))
    throw Error(centered ? "takes x, gamma and beta" : "takes x and gamma");
  check_x(inputs[0], groups);
  for (const auto& parameter : inputs.subspan(1))
    require_type("a parameter", parameter, channel_type(inputs[0]));
  const TensorType statistic = statistic_type(inputs[0], groups);
  Types types{inputs[0], statistic};
  if (centered) types.push_back(statistic);
  return types;
}
Tensors GroupNormOp::vjp(const VjpArgs& args) const {
  for (std::size_t i = 1; i < args.grads.size(); ++i)
    if (args.grads[i])
      no_rule(*this, "vjp", "its statistics have no derivative; use those of mean() and variance()");
  Tensors operands{args.inputs[0], args.inputs[1], args.grads[0], args.outputs[1]};
  if (centered) operands.push_back(args.outputs[2]);
  return apply_op(std::make_shared<GroupNormGradOp>(groups, centered), std::move(operands));
}

std::string GroupNormGradOp::attributes() const {
  return fmt::format("groups={} centered={}", groups, int{centered});
}
Types GroupNormGradOp::infer(TypesView inputs) const {
  if (inputs.size() != (centered ? 5 : 4))
    throw Error("takes x, gamma, the gradient of y and the statistics");
  const TensorType& x = inputs[0];
  check_x(x, groups);
  require_type("gamma", inputs[1], channel_type(x));
  require_type("the gradient of y", inputs[2], x);
  for (const auto& statistic : inputs.subspan(3))
    require_type("a statistic", statistic, statistic_type(x, groups));
  Types types{x, inputs[1]};
  if (centered) types.push_back(inputs[1]);
  return types;
}
Tensors GroupNormGradOp::vjp(const VjpArgs&) const {
  no_rule(
      *this, "vjp",
      "group, layer and RMS norms are differentiated by one kernel; for second derivatives, compose the norm from mean(), variance() and pointwise ops");
}

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& gamma, const Tensor& beta,
                  double epsilon) {
  return normalized(groups, epsilon, {x, gamma, beta});
}
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  return reshape(normalized(1, epsilon, {rows_of(x), gamma, beta}), x.shape());
}
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double epsilon) {
  return reshape(normalized(1, epsilon, {rows_of(x), gamma}), x.shape());
}

}  // namespace tandem
