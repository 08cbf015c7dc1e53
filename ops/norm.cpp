#include <tandem/ops/norm.h>

#include <numeric>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
namespace {

// (C) in the dtype of parameters and statistics.
TensorType channel_type(const TensorType& x) {
  if (x.rank() < 2 || !is_floating(x.dtype) || x.elements() == 0)
    throw Error(fmt::format("{} is not (N,…,C) of a floating dtype, or is empty", to_string(x)));
  return {x.dtype == DType::f64 ? DType::f64 : DType::f32, {x.shape.back()}};
}

void check_channels(const TensorType& x, std::span<const TensorType> vectors) {
  for (const auto& t : vectors)
    if (t != channel_type(x))
      throw Error(fmt::format("{} per channel, not {}", to_string(channel_type(x)), to_string(t)));
}

// Elements a statistic is taken over.
double rows(const Tensor& x) { return static_cast<double>(x.elements() / x.size(-1)); }

// (…,C) -> (C)
Tensor sum_rows(const Tensor& x) {
  std::vector<int> axes(x.shape().size() - 1);
  std::iota(axes.begin(), axes.end(), 0);
  return sum(x, axes);
}

// A sum in which an undefined Tensor is zero.
Tensor plus(const Tensor& a, const Tensor& b) { return !a ? b : !b ? a : a + b; }

}  // namespace

std::string BatchNorm::attributes() const { return fmt::format("epsilon={}", epsilon); }
Types BatchNorm::infer(std::span<const TensorType> inputs) const {
  if (inputs.size() != 3) throw Error("takes x, gamma and beta");
  check_channels(inputs[0], inputs.subspan(1));
  const TensorType c = channel_type(inputs[0]);
  return {inputs[0], c, c, c};
}

// The statistics are outputs, so they may have gradients of their own: in second derivatives they do.
Tensors BatchNorm::vjp(const VjpArgs& args) const {
  const Tensor &x = args.inputs[0], &mean = args.outputs[1], &inv_std = args.outputs[3];
  Tensors gradients(3);
  if (args.grads[0])
    gradients =
        apply_op(std::make_shared<BatchNormGrad>(), {x, args.inputs[1], mean, inv_std, args.grads[0]});
  Tensor by_variance = args.grads[2];
  if (args.grads[3]) by_variance = plus(by_variance, args.grads[3] * inv_std * inv_std * inv_std * -0.5);
  Tensor by_statistics;
  if (by_variance) by_statistics = (x - mean) * (by_variance * (2 / rows(x)));
  if (args.grads[1]) by_statistics = plus(by_statistics, args.grads[1] / rows(x));
  if (by_statistics)
    gradients[0] = cast(broadcast_to(plus(gradients[0], by_statistics), x.shape()), x.dtype());
  return gradients;
}

Tensors BatchNorm::batch(const BatchArgs& args) const {
  return map_over_models(std::make_shared<BatchNorm>(epsilon), args);
}
Work BatchNorm::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = 7 * static_cast<double>(inputs[0].elements());
  work.bytes += static_cast<double>(inputs[0].bytes());  // once for the statistics, once to normalise
  return work;
}

Types BatchNormGrad::infer(std::span<const TensorType> inputs) const {
  if (inputs.size() != 5) throw Error("takes x, gamma, mean, inv_std and the gradient of y");
  check_channels(inputs[0], inputs.subspan(1, 3));
  if (inputs[4] != inputs[0]) throw Error(fmt::format("the gradient of y is not {}", to_string(inputs[0])));
  return {inputs[0], inputs[1], inputs[1]};
}

// With x̂ = (x − mean)·inv_std and n rows, the op is
//   dgamma = Σ dy·x̂,  dbeta = Σ dy,  dx = gamma·inv_std·(dy − dbeta/n − x̂·dgamma/n).
// dx is linear and self-adjoint in dy, so its gradient `u` passes through the same op, which also gives
// Σ u·x̂ and Σ u. `v` and `w` are the gradients of dgamma and dbeta.
Tensors BatchNormGrad::vjp(const VjpArgs& args) const {
  const Tensor &x = args.inputs[0], &gamma = args.inputs[1], &mean = args.inputs[2],
               &inv_std = args.inputs[3], &dy = args.inputs[4];
  const Tensor &dgamma = args.outputs[1], &dbeta = args.outputs[2];
  const Tensor &u = args.grads[0], &v = args.grads[1], &w = args.grads[2];
  const double n = rows(x);
  Tensor by_x, by_gamma, by_mean, by_inv_std, by_dy;
  if (u) {
    const Tensors same = apply_op(std::make_shared<BatchNormGrad>(), {x, gamma, mean, inv_std, u});
    const Tensor &sum_u_normal = same[1], &sum_u = same[2];
    const Tensor b = dgamma / n, q = sum_u_normal / n, s = gamma * inv_std;
    const Tensor along =
        sum_rows(u * dy) - sum_u * (dbeta / n) - sum_u_normal * b;  // Σ u·(dy − dbeta/n − x̂·b)
    by_dy = same[0];
    by_gamma = inv_std * along;
    by_x = (u * b + dy * q) * (-(s * inv_std));
    by_mean = s * inv_std * (b * sum_u + q * dbeta);
    by_inv_std = gamma * (along - b * q * (2 * n));
  }
  if (v) {
    by_dy = plus(by_dy, (x - mean) * (inv_std * v));
    by_x = plus(by_x, dy * (v * inv_std));
    by_mean = plus(by_mean, -(v * inv_std * dbeta));
    by_inv_std = plus(by_inv_std, v * dgamma / inv_std);
  }
  if (w) by_dy = plus(by_dy, w);
  if (by_dy) by_dy = cast(broadcast_to(by_dy, x.shape()), x.dtype());
  if (by_x) by_x = cast(by_x, x.dtype());
  return {by_x, by_gamma, by_mean, by_inv_std, by_dy};
}

Tensors BatchNormGrad::batch(const BatchArgs& args) const {
  return map_over_models(std::make_shared<BatchNormGrad>(), args);
}
Work BatchNormGrad::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = 9 * static_cast<double>(inputs[0].elements());
  work.bytes += 2 * static_cast<double>(inputs[0].bytes());  // x and dy once for the sums, once for dx
  return work;
}

BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const Tensors outputs = apply_op(std::make_shared<BatchNorm>(epsilon), {x, gamma, beta});
  return {outputs[0], outputs[1], outputs[2]};
}

Tensor batch_norm_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& mean,
                            const Tensor& variance, double epsilon) {
  return cast((x - mean) * (gamma * rsqrt(variance + epsilon)) + beta, x.dtype());
}

}  // namespace tandem
