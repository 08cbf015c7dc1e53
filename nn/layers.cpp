#include <tandem/nn/layers.h>

#include <fmt/format.h>

#include <tandem/core/graph/trace.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/index.h>
#include <tandem/ops/init.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/random.h>

namespace tandem::nn {
using namespace engine;
namespace {

Parameter drawn(const std::string& name, Shape shape, Fans fans, const Initializer& init = {}) {
  return {.name = name,
          .tensor = Tensor::zeros({default_dtype(), std::move(shape)}),
          .initialize = [fans, init = init ? init : default_uniform()](
                            const TensorType& t, const std::string& path, std::uint64_t seed) {
            return init(t, fans, path, seed);
          }};
}

// The weight of a convolution.
Parameter filters(Shape shape, Fans fans, const Initializer& init) {
  Parameter p = drawn("weight", std::move(shape), fans, init);
  p.channels_last = p.tensor.shape();
  return p;
}

Parameter filled(const std::string& name, Shape shape, double value, bool trained) {
  return {name, Tensor::full({default_dtype(), std::move(shape)}, value), trained,
          [value](const TensorType& t, const std::string&, std::uint64_t) { return Tensor::full(t, value); }};
}

// Without an initializer for the weights, PyTorch's draw; else 0.
Parameter bias_of(std::int64_t out, Fans fans, const Initializer& init) {
  return init ? filled("bias", {out}, 0, true) : drawn("bias", {out}, fans);
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

Linear::Linear(Module& parent, const std::string& name, LinearOptions options)
    : Module(parent, name), options_(options) {
  require_sizes("linear layer", name, options.in, options.out);
  const Fans fans{options.in, options.out};
  Parameter weight = drawn("weight", {options.out, options.in}, fans, options.init);
  if (const Shape& image = options.image; !image.empty()) {
    if (image.size() != 3 || element_count(image) != options.in)
      throw Error(fmt::format(
          "linear layer '{}' has {} inputs: its image must have (height, width, channels) of that "
          "size, not {}",
          name, options.in, to_string(image)));
    weight.channels_last = {options.out, image[0], image[1], image[2]};
  }
  add_parameter(std::move(weight));
  if (options.bias) add_parameter(bias_of(options.out, fans, options.init));
}
Tensor Linear::forward(const Tensor& x) {
  return linear(x, parameter(0), options_.bias ? parameter(1) : Tensor());
}

Conv2d::Conv2d(Module& parent, const std::string& name, const Conv2dOptions& options)
    : Module(parent, name), options_(options) {
  require_sizes("convolution", name, options.in, options.out);
  const std::int64_t channels = per_group("input", options.in, options.groups);
  const auto [rows, columns] = options.kernel;
  const Fans fans{rows * columns * channels, rows * columns * options.out / options.groups};
  add_parameter(filters({options.out, rows, columns, channels}, fans, options.init));
  if (options.bias) add_parameter(bias_of(options.out, fans, options.init));
}
Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, parameter(0), options_.bias ? parameter(1) : Tensor(),
                {.stride = options_.stride,
                 .padding = options_.padding,
                 .dilation = options_.dilation,
                 .groups = options_.groups});
}

ConvTranspose2d::ConvTranspose2d(Module& parent, const std::string& name,
                                 const ConvTranspose2dOptions& options)
    : Module(parent, name), options_(options) {
  require_sizes("transposed convolution", name, options.in, options.out);
  const std::int64_t channels = per_group("output", options.out, options.groups);
  const auto [rows, columns] = options.kernel;
  const Fans fans{rows * columns * channels, rows * columns * options.in / options.groups};
  add_parameter(filters({options.in, rows, columns, channels}, fans, options.init));
  if (options.bias) add_parameter(bias_of(options.out, fans, options.init));
}
Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, parameter(0), options_.bias ? parameter(1) : Tensor(),
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .dilation = options_.dilation,
                           .groups = options_.groups});
}

SeparableConv2d::SeparableConv2d(Module& parent, const std::string& name, SeparableConv2dOptions o)
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

Embedding::Embedding(Module& parent, const std::string& name, EmbeddingOptions options)
    : Module(parent, name) {
  const auto standard_normal = [](const TensorType& t, Fans, const std::string& path, std::uint64_t seed) {
    return normal(t, 0, 1, path, seed);
  };
  add_parameter(drawn("weight", {options.count, options.features}, {}, standard_normal));
}
Tensor Embedding::forward(const Tensor& ids) { return embedding(parameter(0), ids); }

BatchNorm::BatchNorm(Module& parent, const std::string& name, BatchNormOptions options)
    : Module(parent, name), options_(options) {
  if (!(options.eps >= 0) || !(options.momentum >= 0 && options.momentum <= 1))
    throw Error(fmt::format("BatchNorm '{}': eps {} must be 0 or more, momentum {} from 0 to 1", name,
                            options.eps, options.momentum));
  add_parameter(filled("weight", {options.channels}, 1, true));
  add_parameter(filled("bias", {options.channels}, 0, true));
  add_parameter(filled("running_mean", {options.channels}, 0, false));
  add_parameter(filled("running_var", {options.channels}, 1, false));
  add_torch_counter("num_batches_tracked");
}

Tensor BatchNorm::forward(const Tensor& x) {
  if (!training())
    return batch_norm_inference(x, parameter(0), parameter(1), parameter(2), parameter(3), options_.eps);
  const BatchNormResult r = batch_norm(x, parameter(0), parameter(1), options_.eps);
  const double count = static_cast<double>(x.elements() / x.size(-1));
  const double m = options_.momentum;
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  assign(parameter(2), add(scale(parameter(2), 1 - m), scale(r.mean, m)));
  assign(parameter(3), add(scale(parameter(3), 1 - m), scale(r.variance, m * unbiased)));
  return r.y;
}

LayerNorm::LayerNorm(Module& parent, const std::string& name, LayerNormOptions options)
    : Module(parent, name), options_(options) {
  add_parameter(filled("weight", {options.features}, 1, true));
  add_parameter(filled("bias", {options.features}, 0, true));
}
Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, parameter(0), parameter(1), options_.eps); }

RmsNorm::RmsNorm(Module& parent, const std::string& name, RmsNormOptions options)
    : Module(parent, name), options_(options) {
  add_parameter(filled("weight", {options.features}, 1, true));
}
Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, parameter(0), options_.eps); }

GroupNorm::GroupNorm(Module& parent, const std::string& name, GroupNormOptions options)
    : Module(parent, name), options_(options) {
  add_parameter(filled("weight", {options.channels}, 1, true));
  add_parameter(filled("bias", {options.channels}, 0, true));
}
Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, options_.groups, parameter(0), parameter(1), options_.eps);
}

Tensor Dropout::forward(const Tensor& x) { return training() ? dropout(x, p_, current_seed()) : x; }

}  // namespace tandem::nn
