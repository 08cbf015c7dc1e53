#include <tandem/ops/random.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {
using namespace engine;

DropoutOp::DropoutOp(double p) : p(p) {
  if (!(p >= 0 && p < 1))
    throw Error(fmt::format("dropout: the probability of dropping is {}, not in [0, 1)", p));
}

std::string DropoutOp::attributes() const { return fmt::format("p={}", p); }
Types DropoutOp::infer(TypesView inputs) const {
  if (inputs.size() != 2) throw Error(fmt::format("takes x and a seed, not {} inputs", inputs.size()));
  if (!is_floating(inputs[0].dtype) || inputs[0].rank() == 0)
    throw Error(
        fmt::format("x must be floating with a leading axis of samples, not {}", to_string(inputs[0])));
  if (inputs[1] != TensorType{DType::i64, {}})
    throw Error(fmt::format("the seed must be i64[], not {}", to_string(inputs[1])));
  return {inputs[0]};
}
Tensors DropoutOp::vjp(const VjpArgs& args) const {
  return {apply_op1(std::make_shared<DropoutOp>(p), {args.grads[0], args.inputs[1]}),
          Tensor()};  // also if p = 0
}

std::string_view engine::name_of(Distribution distribution) {
  return distribution == Distribution::uniform ? "uniform" : "standard_normal";
}

std::string NoiseOp::attributes() const {
  return fmt::format("distribution={} type={}", name_of(distribution), to_string(type));
}
Types NoiseOp::infer(TypesView inputs) const {
  if (only_input(inputs) != TensorType{DType::i64, {}})
    throw Error(fmt::format("the seed must be i64[], not {}", to_string(inputs[0])));
  if (!is_floating(type.dtype) || type.rank() == 0)
    throw Error(fmt::format("{} cannot be drawn: it needs a floating dtype and a leading axis of samples",
                            to_string(type)));
  return {type};
}

Tensor standard_normal(const TensorType& type, const Tensor& seed) {
  return apply_op1(std::make_shared<NoiseOp>(Distribution::standard_normal, type), {seed});
}

Tensor uniform(const TensorType& type, const Tensor& seed) {
  return apply_op1(std::make_shared<NoiseOp>(Distribution::uniform, type), {seed});
}

Tensor dropout(const Tensor& x, double p, const Tensor& seed) {
  auto op = std::make_shared<DropoutOp>(p);
  return p == 0 ? x : apply_op1(std::move(op), {x, seed});
}

}  // namespace tandem
