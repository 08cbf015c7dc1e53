#include <tandem/ops/conv.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/pointwise.h>

namespace tandem {
using namespace engine;
namespace {

void check_inputs(TypesView inputs, std::size_t least, std::size_t most) {
  if (inputs.size() < least || inputs.size() > most)
    throw Error(fmt::format("takes {} to {} inputs, not {}", least, most, inputs.size()));
  for (const auto& t : inputs)
    if (!is_floating(t.dtype) || t.dtype != inputs[0].dtype)
      throw Error("inputs must have the same floating dtype; cast them");
}

void check_groups(std::int64_t groups, std::int64_t channels) {
  if (groups < 1 || channels % groups != 0)
    throw Error(fmt::format("{} channels do not split into {}", channels, counted(groups, "group")));
}

// Computes all extents from those that are given; each comes from an op's input or from its attributes.
Conv2dSize make_size(const Conv2dOptions& options, std::int64_t n, Size2 image, std::int64_t in,
                     std::int64_t out, Size2 kernel) {
  const Window window{kernel, options.stride, options.padding, options.dilation};
  if (n < 1 || in < 1 || out < 1) throw Error("an operand is empty");
  for (const std::int64_t channels : {in, out}) check_groups(options.groups, channels);
  return {n, in, out, options.groups, image, window.positions(image), window};
}

void check_output(const Conv2dSize& s, const TensorType& grad_output) {
  const Shape expected{s.n, s.output.h, s.output.w, s.out};
  if (grad_output.shape != expected)
    throw Error(fmt::format("the gradient of the output is {}; it must be {}", to_string(grad_output.shape),
                            to_string(expected)));
}

TensorType image_type(const Conv2dSize& s, DType dtype) { return {dtype, {s.n, s.image.h, s.image.w, s.in}}; }
TensorType output_type(const Conv2dSize& s, DType dtype) {
  return {dtype, {s.n, s.output.h, s.output.w, s.out}};
}
TensorType weight_type(const Conv2dSize& s, DType dtype) {
  return {dtype, {s.out, s.window.kernel.h, s.window.kernel.w, s.in / s.groups}};
}

}  // namespace

std::string ConvolutionOp::attributes() const {
  return fmt::format("stride={} padding={} dilation={} groups={}", to_string(options.stride),
                     to_string(options.padding), to_string(options.dilation), options.groups);
}

// All three ops multiply each channel of each output pixel by every tap of every input channel of its group.
Work ConvolutionOp::cost(TypesView inputs, TypesView outputs) const {
  const Conv2dSize s = size(inputs);
  const double taps = static_cast<double>(s.window.kernel.h * s.window.kernel.w * (s.in / s.groups));
  return {2.0 * static_cast<double>(s.n * s.output.h * s.output.w * s.out) * taps,
          streaming_work(inputs, outputs, 0).bytes};
}

std::int64_t Conv2dSize::pixel_under(std::int64_t o, std::int64_t tap) const {
  const std::int64_t row = o / output.w * window.stride.h + tap / window.kernel.w * window.dilation.h -
                           window.padding.h,
                     column = o % output.w * window.stride.w + tap % window.kernel.w * window.dilation.w -
                              window.padding.w;
  return row >= 0 && row < image.h && column >= 0 && column < image.w ? row * image.w + column : -1;
}

Conv2dSize Conv2dOp::size(TypesView inputs) const {
  check_inputs(inputs, 2, 3);
  const TensorType &x = inputs[0], &w = inputs[1];
  check_images("input", x);
  check_groups(options.groups, x.shape[3]);
  if (w.rank() != 4 || w.shape[3] != x.shape[3] / options.groups)
    throw Error(fmt::format("an image (N,H,W,C) of {} channels in {} needs weights (O,Kh,Kw,{}), not {}",
                            x.shape[3], counted(options.groups, "group"), x.shape[3] / options.groups,
                            to_string(w.shape)));
  if (inputs.size() == 3 && inputs[2].shape != Shape{w.shape[0]})
    throw Error(fmt::format("the bias is {}; it must be ({})", to_string(inputs[2].shape), w.shape[0]));
  return make_size(options, x.shape[0], pixels(x), x.shape[3], w.shape[0], pixels(w));
}
Types Conv2dOp::infer(TypesView inputs) const { return {output_type(size(inputs), inputs[0].dtype)}; }
Tensors Conv2dOp::vjp(const VjpArgs& args) const {
  const Tensor &x = args.inputs[0], &w = args.inputs[1], &g = args.grads[0];
  const bool bias = args.inputs.size() == 3 && args.needed[2];
  Tensors gradients(args.inputs.size());
  if (args.needed[0]) gradients[0] = conv2d_grad_input(g, w, pixels(x.type()), options);
  if (args.needed[1] || bias) {
    const Tensors weight_and_bias = conv2d_grad_weight(x, g, pixels(w.type()), bias, options);
    gradients[1] = weight_and_bias[0];
    if (bias) gradients[2] = weight_and_bias[1];
  }
  return gradients;
}

std::string Conv2dGradInputOp::attributes() const {
  return fmt::format("{} image={}", ConvolutionOp::attributes(), to_string(image));
}
Conv2dSize Conv2dGradInputOp::size(TypesView inputs) const {
  check_inputs(inputs, 2, 2);
  const TensorType &g = inputs[0], &w = inputs[1];
  check_images("gradient of the output", g);
  check_images("weights", w);
  check_groups(options.groups, w.shape[0]);
  const Conv2dSize s =
      make_size(options, g.shape[0], image, w.shape[3] * options.groups, w.shape[0], pixels(w));
  check_output(s, g);
  return s;
}
Types Conv2dGradInputOp::infer(TypesView inputs) const { return {image_type(size(inputs), inputs[0].dtype)}; }
Tensors Conv2dGradInputOp::vjp(const VjpArgs& args) const {
  const Tensor &grad_output = args.inputs[0], &w = args.inputs[1], &g = args.grads[0];
  Tensors gradients(2);
  if (args.needed[0]) gradients[0] = conv2d(g, w, {}, options);
  if (args.needed[1]) gradients[1] = conv2d_grad_weight(g, grad_output, pixels(w.type()), false, options)[0];
  return gradients;
}

std::string Conv2dGradWeightOp::attributes() const {
  return fmt::format("{} kernel={} bias={}", ConvolutionOp::attributes(), to_string(kernel), int{bias});
}
Conv2dSize Conv2dGradWeightOp::size(TypesView inputs) const {
  check_inputs(inputs, 2, 2);
  const TensorType &x = inputs[0], &g = inputs[1];
  check_images("input", x);
  check_images("gradient of the output", g);
  const Conv2dSize s = make_size(options, x.shape[0], pixels(x), x.shape[3], g.shape[3], kernel);
  check_output(s, g);
  return s;
}
Types Conv2dGradWeightOp::infer(TypesView inputs) const {
  const Conv2dSize s = size(inputs);
  Types types{weight_type(s, inputs[0].dtype)};
  if (bias) types.push_back({inputs[0].dtype, {s.out}});
  return types;
}
// The adjoint of grad_output -> (grad_weights, grad_bias) is the convolution whose weights and bias are the
// gradients of these two outputs.
Tensors Conv2dGradWeightOp::vjp(const VjpArgs& args) const {
  const Tensor &x = args.inputs[0], &grad_output = args.inputs[1];
  const Tensor by_bias = bias ? args.grads[1] : Tensor();
  const Tensor weights = args.grads[0] ? args.grads[0] : Tensor::zeros(args.outputs[0].type());
  Tensors gradients(2);
  if (args.needed[0] && args.grads[0])
    gradients[0] = conv2d_grad_input(grad_output, weights, pixels(x.type()), options);
  if (args.needed[1]) gradients[1] = conv2d(x, weights, by_bias, options);
  return gradients;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  Tensors operands{x, weight};
  if (bias) operands.push_back(bias);
  return apply_op1(std::make_shared<Conv2dOp>(options), std::move(operands));
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& o) {
  const TensorType &image = x.type(), &w = weight.type();
  if (image.rank() != 4 || w.rank() != 4 || w.shape[0] != image.shape[3])
    throw Error(
        fmt::format("conv_transpose2d: needs image (N,H,W,C) and weights (C,Kh,Kw,O/groups), not {} and {}",
                    to_string(image), to_string(w)));
  check_groups(o.groups, image.shape[3]);
  if (bias && bias.shape() != Shape{w.shape[3] * o.groups})
    throw Error(fmt::format("conv_transpose2d: the bias is {}; it must be ({})", to_string(bias.type()),
                            w.shape[3] * o.groups));
  const Window window{{w.shape[1], w.shape[2]}, o.stride, o.padding, o.dilation};
  const Size2 p = o.output_padding, least = window.covered(pixels(image)), size{least.h + p.h, least.w + p.w};
  if (p.h < 0 || p.w < 0 || p.h >= o.stride.h || p.w >= o.stride.w)
    throw Error(fmt::format("conv_transpose2d: output_padding {} must be at least 0 and below the stride {}",
                            to_string(p), to_string(o.stride)));
  const Tensor y = conv2d_grad_input(x, weight, size, {o.stride, o.padding, o.dilation, o.groups});
  return bias ? y + bias : y;
}
Tensor engine::conv2d_grad_input(const Tensor& grad_output, const Tensor& weight, Size2 image,
                                 const Conv2dOptions& options) {
  return apply_op1(std::make_shared<Conv2dGradInputOp>(options, image), {grad_output, weight});
}
Tensors engine::conv2d_grad_weight(const Tensor& x, const Tensor& grad_output, Size2 kernel, bool bias,
                                   const Conv2dOptions& options) {
  return apply_op(std::make_shared<Conv2dGradWeightOp>(options, kernel, bias), {x, grad_output});
}

}  // namespace tandem
