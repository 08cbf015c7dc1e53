#include <tandem/ops/pool.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/reduce.h>

namespace tandem {
using namespace engine;
namespace {

void check_inputs(TypesView inputs, std::size_t count) {
  require_inputs(inputs, count);
  if (!is_floating(inputs[0].dtype))
    throw Error(fmt::format("{} has no floating dtype; cast it", to_string(inputs[0])));
}

// The windows along one axis of `extent` pixels.
PoolAxis axis_of(std::int64_t extent, std::int64_t output, std::int64_t kernel, std::int64_t stride,
                 std::int64_t padding, std::int64_t sliding_positions) {
  if (output == 0) return {extent, sliding_positions, kernel, stride, padding, false};
  const std::int64_t largest = extent % output == 0 ? extent / output : std::min(extent, extent / output + 2);
  return {extent, output, largest, 0, 0, true};
}

std::pair<PoolAxis, PoolAxis> axes_of(const Pool2dOptions& o, Size2 image) {
  const bool adaptive = o.output != Size2(0);
  const Size2 sliding = adaptive ? o.output : Window{o.kernel, o.stride, o.padding, 1}.positions(image);
  return {axis_of(image.h, o.output.h, o.kernel.h, o.stride.h, o.padding.h, sliding.h),
          axis_of(image.w, o.output.w, o.kernel.w, o.stride.w, o.padding.w, sliding.w)};
}

TensorType pooled(const Pool2dOptions& options, const TensorType& x) {
  check_images("input", x);
  const auto [h, w] = axes_of(options, pixels(x));
  return {x.dtype, {x.shape[0], h.positions, w.positions, x.shape[3]}};
}

// Type of the image whose pooled output has the gradient `grad_output`.
TensorType unpooled(const Pool2dOptions& options, const TensorType& grad_output, Size2 image) {
  check_images("gradient of the output", grad_output);
  TensorType x{grad_output.dtype, {grad_output.shape[0], image.h, image.w, grad_output.shape[3]}};
  if (pooled(options, x) != grad_output)
    throw Error(fmt::format("the gradient of the output is {}; it must be {}", to_string(grad_output),
                            to_string(pooled(options, x))));
  return x;
}

TensorType index_type(const Pool2dOptions& options, Size2 image, const TensorType& output) {
  const auto [h, w] = axes_of(options, image);
  return {h.kernel * w.kernel <= 256 ? DType::u8 : DType::i32, output.shape};
}

void check_index(const Pool2dOptions& options, Size2 image, const TensorType& index,
                 const TensorType& output) {
  const TensorType expected = index_type(options, image, output);
  if (index != expected)
    throw Error(fmt::format("the index is {}; it must be {}", to_string(index), to_string(expected)));
}

// Number of pixels of the image under the window at `position`.
std::int64_t covered(const PoolAxis& axis, std::int64_t position) {
  return std::min(axis.end(position), axis.extent) - std::max<std::int64_t>(axis.begin(position), 0);
}

}  // namespace

Pool2dOptions::Pool2dOptions(Size2 kernel, Size2 stride, Size2 padding, bool count_include_pad)
    : kernel(kernel),
      stride(stride == Size2(0) ? kernel : stride),
      padding(padding),
      count_include_pad(count_include_pad) {
  if (2 * padding.h > kernel.h || 2 * padding.w > kernel.w)
    throw Error(
        fmt::format("pooling: padding {} is more than half the kernel {}: a window could miss the image",
                    to_string(padding), to_string(kernel)));
}

Pool2dOptions Pool2dOptions::adaptive(Size2 output) {
  if (output.h < 1 || output.w < 1)
    throw Error(fmt::format("adaptive pooling to {}: the output needs one pixel or more", to_string(output)));
  Pool2dOptions options(1);
  options.output = output;
  return options;
}

std::int64_t PoolAxis::begin(std::int64_t position) const {
  return adaptive ? position * extent / positions : position * stride - padding;
}
std::int64_t PoolAxis::end(std::int64_t position) const {
  return adaptive ? ((position + 1) * extent + positions - 1) / positions : begin(position) + kernel;
}

double Pool2dSize::divisor(std::int64_t oh, std::int64_t ow) const {
  if (count_include_pad && !h.adaptive) return static_cast<double>(h.kernel * w.kernel);
  return static_cast<double>(covered(h, oh) * covered(w, ow));
}

Pool2dSize engine::pool2d_size(const Pool2dOptions& options, const TensorType& image,
                               const TensorType& output) {
  const auto [h, w] = axes_of(options, pixels(image));
  return {image.shape[0], image.shape[3], pixels(image), pixels(output), h, w, options.count_include_pad};
}

std::string Pool2dOp::attributes() const {
  if (options.output != Size2(0)) return fmt::format("adaptive={}", to_string(options.output));
  return fmt::format("kernel={} stride={} padding={} count_include_pad={}", to_string(options.kernel),
                     to_string(options.stride), to_string(options.padding), int{options.count_include_pad});
}
Work Pool2dOp::cost(TypesView inputs, TypesView outputs) const {
  const auto [less, more] = std::minmax({inputs[0].elements(), outputs[0].elements()});  // by value
  const auto flops = options.output != Size2(0) ? more : less * options.kernel.h * options.kernel.w;
  return {static_cast<double>(flops), streaming_work(inputs, outputs, 0).bytes};
}

Types MaxPool2dOp::infer(TypesView inputs) const {
  check_inputs(inputs, 1);
  const TensorType y = pooled(options, inputs[0]);
  return {y, index_type(options, pixels(inputs[0]), y)};
}
Tensors MaxPool2dOp::vjp(const VjpArgs& args) const {
  return apply_op(std::make_shared<MaxPool2dGradOp>(options, pixels(args.inputs[0].type())),
                  {args.grads[0], args.outputs[1]});
}

std::string MaxPool2dGradOp::attributes() const {
  return fmt::format("{} image={}", Pool2dOp::attributes(), to_string(image));
}
Types MaxPool2dGradOp::infer(TypesView inputs) const {
  check_inputs(inputs, 2);
  check_index(options, image, inputs[1], inputs[0]);
  return {unpooled(options, inputs[0], image)};
}
Tensors MaxPool2dGradOp::vjp(const VjpArgs& args) const {
  return {apply_op1(std::make_shared<MaxPool2dTakeOp>(options), {args.grads[0], args.inputs[1]}), Tensor()};
}

Types MaxPool2dTakeOp::infer(TypesView inputs) const {
  check_inputs(inputs, 2);
  const TensorType y = pooled(options, inputs[0]);
  check_index(options, pixels(inputs[0]), inputs[1], y);
  return {y};
}
Tensors MaxPool2dTakeOp::vjp(const VjpArgs& args) const {
  return {apply_op1(std::make_shared<MaxPool2dGradOp>(options, pixels(args.inputs[0].type())),
                    {args.grads[0], args.inputs[1]}),
          Tensor()};
}

Types AvgPool2dOp::infer(TypesView inputs) const {
  check_inputs(inputs, 1);
  return {pooled(options, inputs[0])};
}
Tensors AvgPool2dOp::vjp(const VjpArgs& args) const {
  return apply_op(std::make_shared<AvgPool2dGradOp>(options, pixels(args.inputs[0].type())), {args.grads[0]});
}

std::string AvgPool2dGradOp::attributes() const {
  return fmt::format("{} image={}", Pool2dOp::attributes(), to_string(image));
}
Types AvgPool2dGradOp::infer(TypesView inputs) const {
  check_inputs(inputs, 1);
  return {unpooled(options, inputs[0], image)};
}
Tensors AvgPool2dGradOp::vjp(const VjpArgs& args) const { return {avg_pool2d(args.grads[0], options)}; }

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return apply_op(std::make_shared<MaxPool2dOp>(options), {x})[0];
}
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  return apply_op1(std::make_shared<AvgPool2dOp>(options), {x});
}
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output) {
  return max_pool2d(x, Pool2dOptions::adaptive(output));
}
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output) {
  return avg_pool2d(x, Pool2dOptions::adaptive(output));
}
Tensor global_avg_pool2d(const Tensor& x) { return mean(x, {1, 2}); }
Tensor global_max_pool2d(const Tensor& x) { return max(x, {1, 2}); }

}  // namespace tandem
