#include <tandem/nn/layers.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/graph/trace.h>
#include <tandem/nn/drawn_parameter.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/index.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
using namespace engine;
namespace {

Parameter drawn(const std::string& name, Shape shape, Fans fans, const Initializer& init = {}) {
  return drawn_parameter(name, std::move(shape), fans, init ? init : default_uniform());
}

// The weight of a convolution.
Parameter filters(Shape shape, Fans fans, const Initializer& init) {
  Parameter p = drawn("weight", std::move(shape), fans, init);
  p.channels_last = p.tensor.shape();
  return p;
}

Parameter filled(const std::string& name, Shape shape, double value, bool buffer = false) {
  return {name, Tensor::full({default_dtype(), std::move(shape)}, value), buffer,
          [value](const TensorType& t, const std::string&, std::uint64_t) { return Tensor::full(t, value); }};
}

// Without an initializer for the weights or the biases, PyTorch's draw; without one for the biases, 0.
Parameter bias_of(std::int64_t out, Fans fans, const Initializer& init, const Initializer& bias_init = {}) {
  return init && !bias_init ? filled("bias", {out}, 0) : drawn("bias", {out}, fans, bias_init);
}

// Channels of one group.
std::int64_t per_group(const char* what, std::int64_t channels, std::int64_t groups) {
  if (groups < 1 || channels % groups != 0)
    throw Error(
        fmt::format("a convolution: {} {} channels do not split into {} groups", channels, what, groups));
  return channels / groups;
}

// An option that the caller did not set is 0.
void require_sizes(const char* what, const std::string& name, std::int64_t in, std::int64_t out) {
  if (in < 1 || out < 1)
    throw Error(fmt::format("{} '{}' has .in = {}, .out = {}: give 1 or more", what, name, in, out));
}

}  // namespace

Linear::Linear(ModuleBase& parent, const std::string& name, LinearOptions options)
    : Module(parent, name), options_(options) {
  require_sizes("linear layer", name, options.in, options.out);
  const Fans fans{options.in, options.out};
  Parameter matrix = drawn("weight", {options.out, options.in}, fans, options.init);
  if (const Shape& image = options.image; !image.empty()) {
    if (image.size() != 3 || element_count(image) != options.in)
      throw Error(fmt::format(
          "linear layer '{}' has {} inputs: its image must have (height, width, channels) of that "
          "size, not {}",
          name, options.in, to_string(image)));
    matrix.channels_last = {options.out, image[0], image[1], image[2]};
  }
  weight = add_parameter(std::move(matrix));
  if (options.bias) bias = add_parameter(bias_of(options.out, fans, options.init, options.bias_init));
}
Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Conv2d::Conv2d(ModuleBase& parent, const std::string& name, const Conv2dOptions& options)
    : Module(parent, name), options_(options) {
  require_sizes("convolution", name, options.in, options.out);
  const std::int64_t channels = per_group("input", options.in, options.groups);
  const auto [rows, columns] = options.kernel;
  const Fans fans{rows * columns * channels, rows * columns * options.out};
  weight = add_parameter(filters({options.out, rows, columns, channels}, fans, options.init));
  if (options.bias) bias = add_parameter(bias_of(options.out, fans, options.init));
}
Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, weight, bias,
                {.stride = options_.stride,
                 .padding = options_.padding,
                 .dilation = options_.dilation,
                 .groups = options_.groups});
}

ConvTranspose2d::ConvTranspose2d(ModuleBase& parent, const std::string& name,
                                 const ConvTranspose2dOptions& options)
    : Module(parent, name), options_(options) {
  require_sizes("transposed convolution", name, options.in, options.out);
  const std::int64_t channels = per_group("output", options.out, options.groups);
  const auto [rows, columns] = options.kernel;
  const Fans fans{rows * columns * channels, rows * columns * options.in};
  weight = add_parameter(filters({options.in, rows, columns, channels}, fans, options.init));
  if (options.bias) bias = add_parameter(bias_of(options.out, fans, options.init));
}
Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .dilation = options_.dilation,
                           .groups = options_.groups});
}

SeparableConv2d::SeparableConv2d(ModuleBase& parent, const std::string& name, SeparableConv2dOptions o)
    : Module(parent, name),
      depthwise_(*this, "depthwise",
                 {.in = o.in,
                  .out = o.in,
                  .kernel = o.kernel,
                  .stride = o.stride,
                  .padding = o.padding,
                  .dilation = o.dilation,
                  .groups = o.in,
                  .bias = false}),
      pointwise_(*this, "pointwise", {.in = o.in, .out = o.out, .kernel = 1, .bias = o.bias}) {}

Embedding::Embedding(ModuleBase& parent, const std::string& name, EmbeddingOptions options)
    : Module(parent, name), padding_(options.padding) {
  if (options.padding < -1 || options.padding >= std::max<std::int64_t>(1, options.count))
    throw Error(fmt::format("embedding '{}' has .padding = {}: it must be one of its {} ids, or -1", name,
                            options.padding, options.count));
  if (options.count < 1 || options.features < 1)
    throw Error(fmt::format("embedding '{}' has .count = {}, .features = {}: give 1 or more", name,
                            options.count, options.features));
  weight = add_parameter(
      drawn("weight", {options.count, options.features}, {}, options.init ? options.init : normal(1)));
}
Tensor Embedding::forward(const Tensor& ids) {
  const Tensor rows = embedding(weight, ids);
  if (padding_ < 0) return rows;
  Shape column = ids.shape();
  column.push_back(1);
  return where(not_equal(reshape(ids, column), static_cast<double>(padding_)), rows, detach(rows));
}

BatchNorm::BatchNorm(ModuleBase& parent, const std::string& name, BatchNormOptions options)
    : Module(parent, name), options_(options) {
  if (!(options.eps >= 0) || !(options.momentum >= 0 && options.momentum <= 1))
    throw Error(fmt::format("BatchNorm '{}': eps {} must be 0 or more, momentum {} from 0 to 1", name,
                            options.eps, options.momentum));
  weight = add_parameter(filled("weight", {options.channels}, 1));
  bias = add_parameter(filled("bias", {options.channels}, 0));
  running_mean = add_parameter(filled("running_mean", {options.channels}, 0, /*buffer=*/true));
  running_var = add_parameter(filled("running_var", {options.channels}, 1, /*buffer=*/true));
  add_torch_counter("num_batches_tracked");
}

Tensor BatchNorm::forward(const Tensor& x) {
  if (!training()) return batch_norm_inference(x, weight, bias, running_mean, running_var, options_.eps);
  const BatchNormResult r = batch_norm(x, weight, bias, options_.eps);
  const double count = static_cast<double>(x.elements() / x.size(-1));
  const double m = options_.momentum;
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  assign(running_mean, add(scale(running_mean, 1 - m), scale(r.mean, m)));
  assign(running_var, add(scale(running_var, 1 - m), scale(r.variance, m * unbiased)));
  return r.y;
}

LayerNorm::LayerNorm(ModuleBase& parent, const std::string& name, LayerNormOptions options)
    : Module(parent, name), options_(options) {
  weight = add_parameter(filled("weight", {options.features}, 1));
  bias = add_parameter(filled("bias", {options.features}, 0));
}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight, bias, options_.eps); }

RmsNorm::RmsNorm(ModuleBase& parent, const std::string& name, RmsNormOptions options)
    : Module(parent, name), options_(options) {
  weight = add_parameter(filled("weight", {options.features}, 1));
}
Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, weight, options_.eps); }

GroupNorm::GroupNorm(ModuleBase& parent, const std::string& name, GroupNormOptions options)
    : Module(parent, name), options_(options) {
  weight = add_parameter(filled("weight", {options.channels}, 1));
  bias = add_parameter(filled("bias", {options.channels}, 0));
}
Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, options_.groups, weight, bias, options_.eps);
}

Tensor Dropout::forward(const Tensor& x) {
  if (!training()) return x;
  if (p_ > 0 || !stays_) return dropout(x, p_, current_seed());
  return engine::apply_op1(std::make_shared<engine::DropoutOp>(p_), {x, current_seed()});
}

void Dropout::set_probability(double p) {
  engine::DropoutOp{p};  // throws if it is out of range
  p_ = p;
  stays_ = true;
}

}  // namespace tandem::nn
