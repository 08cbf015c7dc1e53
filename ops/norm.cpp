#include <tandem/ops/norm.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

// Type of parameters and statistics: (C), f64 if x is f64, otherwise f32.
TensorType channel_type(const TensorType& x) {
  if (x.rank() < 2 || !is_floating(x.dtype) || x.elements() == 0)
    throw Error(fmt::format("x must be (N,…,C), floating and not empty, not {}", to_string(x)));
  return {x.dtype == DType::f64 ? DType::f64 : DType::f32, {x.shape.back()}};
}

void check_channels(const TensorType& x, TypesView vectors) {
  for (const auto& t : vectors)
    if (t != channel_type(x))
      throw Error(
          fmt::format("an input per channel must be {}, not {}", to_string(channel_type(x)), to_string(t)));
}

// Number of elements per channel.
double rows(const Tensor& x) { return static_cast<double>(x.elements() / x.size(-1)); }

// a + b; an undefined Tensor counts as zero.
Tensor plus(const Tensor& a, const Tensor& b) { return !a ? b : !b ? a : a + b; }

// Gradient of x from the gradients of mean, variance and inv_std; each of these can be undefined.
Tensor through_statistics(const Tensor& x, const Tensor& mean, const Tensor& inv_std, const Tensors& grads) {
  Tensor by_variance = grads[1];
  if (grads[2]) by_variance = plus(by_variance, grads[2] * inv_std * inv_std * inv_std * -0.5);
  Tensor by_x;
  if (by_variance) by_x = (x - mean) * (by_variance * (2 / rows(x)));
  if (grads[0]) by_x = plus(by_x, grads[0] / rows(x));
  return by_x;
}

Tensor like(const Tensor& gradient, const Tensor& x) {
  return gradient ? cast(broadcast_to(gradient, x.shape()), x.dtype()) : gradient;
}

// The value of a register as an expression of the operands.
Tensor evaluate(const PointwiseBuilder& builder, int register_, DType dtype, std::string label,
                const Tensors& operands) {
  std::vector<int> used;
  PointwiseExpression expression = builder.finish(register_, used);
  Tensors inputs;
  for (int i : used) inputs.push_back(operands[static_cast<std::size_t>(i)]);
  return apply_op1(std::make_shared<PointwiseOp>(std::move(expression), dtype, std::move(label)), inputs);
}

// For n rows, dgamma = Σ dy·(x − mean)·inv_std and dbeta = Σ dy:
//   dx = gamma·inv_std·(dy − dbeta/n − (x − mean)·inv_std·dgamma/n).
Tensor gradient_of_x(const Tensor& x, const Tensor& dy, const Tensor& mean, const Tensor& inv_std,
                     const Tensor& gamma, const Tensor& dgamma, const Tensor& dbeta) {
  using Code = PointwiseCode;
  PointwiseBuilder b;
  const auto mul = [&](int p, int q) { return b.emit({Code::mul, p, q}); };
  const auto sub = [&](int p, int q) { return b.emit({Code::sub, p, q}); };
  const int share = b.constant(1 / rows(x));
  const int scale = mul(b.input(3), b.input(4)), offset = mul(b.input(6), share),
            slope = mul(mul(b.input(5), b.input(3)), share);
  const int centered = sub(b.input(0), b.input(2));
  const int dx = mul(sub(sub(b.input(1), offset), mul(centered, slope)), scale);
  return evaluate(b, dx, x.dtype(), "batch_norm_grad", {x, dy, mean, inv_std, gamma, dgamma, dbeta});
}

}  // namespace

std::string BatchNormOp::attributes() const { return fmt::format("epsilon={}", epsilon); }
Types BatchNormOp::infer(TypesView inputs) const {
  if (inputs.size() != 3) throw Error("takes x, gamma and beta");
  check_channels(inputs[0], inputs.subspan(1));
  const TensorType c = channel_type(inputs[0]);
  return {inputs[0], c, c, c};
}

// The statistics are outputs too; in second derivatives they have gradients of their own.
Tensors BatchNormOp::vjp(const VjpArgs& args) const {
  const Tensor &x = args.inputs[0], &gamma = args.inputs[1], &dy = args.grads[0], &mean = args.outputs[1],
               &inv_std = args.outputs[3];
  Tensors gradients(3);
  if (dy) {
    const Tensors sums = apply_op(std::make_shared<BatchNormSumsOp>(dy.dtype()), {x, mean, dy});
    gradients[1] = sums[1] * inv_std;
    gradients[2] = sums[0];
    if (args.needed[0]) gradients[0] = gradient_of_x(x, dy, mean, inv_std, gamma, gradients[1], gradients[2]);
  }
  if (const Tensor t = through_statistics(x, mean, inv_std, {args.grads[1], args.grads[2], args.grads[3]}))
    gradients[0] = plus(gradients[0], like(t, x));
  return gradients;
}

Work BatchNormOp::cost(TypesView inputs, TypesView outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = 7 * static_cast<double>(inputs[0].elements());
  work.bytes += static_cast<double>(inputs[0].bytes());  // once for the statistics, once to normalize
  return work;
}

std::string BatchNormStatisticsOp::attributes() const { return fmt::format("epsilon={}", epsilon); }
Types BatchNormStatisticsOp::infer(TypesView inputs) const {
  if (inputs.size() != 1) throw Error("takes x");
  return Types(3, channel_type(inputs[0]));
}
Tensors BatchNormStatisticsOp::vjp(const VjpArgs& args) const {
  const Tensor& x = args.inputs[0];
  return {like(through_statistics(x, args.outputs[0], args.outputs[2], args.grads), x)};
}

OpPtr BatchNormSumsOp::with(PointwiseExpression expression) const {
  return std::make_shared<BatchNormSumsOp>(std::move(expression), dtype);
}
PointwiseExpression BatchNormSumsOp::rounded() const {
  if (expression.size() == 1 || size_of(dtype) >= size_of(DType::f32)) return expression;
  PointwiseBuilder b;
  std::vector<int> inputs(static_cast<std::size_t>(input_count(expression))), used;
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = b.input(static_cast<int>(i));
  return b.finish(b.cast(b.append(expression, inputs), dtype), used);
}
std::string BatchNormSumsOp::attributes() const {
  return expression.size() == 1 ? std::string()
                                : fmt::format("{} -> {}", to_string(expression), name_of(dtype));
}
Types BatchNormSumsOp::infer(TypesView inputs) const {
  if (inputs.size() < 3) throw Error("takes x, mean and the gradient of y");
  check_channels(inputs[0], inputs.subspan(1, 1));
  const Types gradient = PointwiseOp(expression, dtype).infer(inputs.subspan(2));
  if (gradient[0].shape != inputs[0].shape)
    throw Error(
        fmt::format("the gradient of y is {}, but x is {}", to_string(gradient[0]), to_string(inputs[0])));
  return {inputs[1], inputs[1]};
}
Tensors BatchNormSumsOp::vjp(const VjpArgs& args) const {
  if (expression.size() > 1) no_rule(*this, "vjp", "expressions are put into it after differentiation");
  const Tensor &x = args.inputs[0], &mean = args.inputs[1], &g = args.inputs[2];
  const Tensor &u = args.grads[0], &v = args.grads[1];  // gradients of Σ g and of Σ g·(x − mean)
  Tensor by_x, by_mean, by_g = u;
  if (v) {
    by_x = g * v;
    by_mean = -(v * args.outputs[0]);
    by_g = plus(by_g, (x - mean) * v);
  }
  return {like(by_x, x), by_mean, like(by_g, g)};
}
Work BatchNormSumsOp::cost(TypesView inputs, TypesView outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = 4 * static_cast<double>(inputs[0].elements());
  if (expression.size() > 1)
    work.flops += PointwiseOp(expression, dtype).cost(inputs.subspan(2), std::vector{inputs[0]}).flops;
  return work;
}

Tensors engine::batch_norm_in_parts(const BatchNormOp& op, const Tensor& x, const Tensor& gamma,
                                    const Tensor& beta) {
  using Code = PointwiseCode;
  const Tensors s = apply_op(std::make_shared<BatchNormStatisticsOp>(op.epsilon), {x});
  PointwiseBuilder b;
  const int centered = b.emit({Code::sub, b.input(0), b.input(1)}),
            scale = b.emit({Code::mul, b.input(2), b.input(3)});
  const int y = b.emit({Code::add, b.emit({Code::mul, centered, scale}), b.input(4)});
  return {evaluate(b, y, x.dtype(), std::string(op.name()), {x, s[0], s[2], gamma, beta}), s[0], s[1], s[2]};
}

BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const Tensors outputs = apply_op(std::make_shared<BatchNormOp>(epsilon), {x, gamma, beta});
  return {outputs[0], outputs[1], outputs[2]};
}

Tensor batch_norm_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& mean,
                            const Tensor& variance, double epsilon) {
  return cast((x - mean) * (gamma * rsqrt(variance + epsilon)) + beta, x.dtype());
}

}  // namespace tandem
