#include <tandem/nn/models/xception.h>

#include <fmt/format.h>

#include <tandem/nn/file_layout.h>
#include <tandem/nn/pool_layers.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem::nn {
namespace {

// As many channels as the original has, if its first convolution has 32.
std::int64_t scaled(const XceptionOptions& o, std::int64_t channels) { return channels * o.width / 32; }

Conv2dOptions convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return {.in = in,
          .out = out,
          .kernel = kernel,
          .stride = stride,
          .bias = false,
          .init = kaiming_normal_by_outputs()};
}

Conv2dOptions separable(std::int64_t in, std::int64_t out) {
  Conv2dOptions options = convolution(in, out, 3);
  options.padding = 1;
  return options;
}

Conv2dOptions depthwise(Conv2dOptions options) {
  options.out = options.groups = options.in;
  return options;
}

}  // namespace

Xception::Separable::Separable(ModuleBase& parent, const std::string& name, const Conv2dOptions& o)
    : Module(parent, name),
      conv1_(*this, "conv1", depthwise(o)),
      pointwise_(*this, "pointwise", convolution(o.in, o.out, 1)) {}

Xception::Block::Block(ModuleBase& parent, const std::string& name, const BlockOptions& o)
    : Module(parent, name), rep_(*this, "rep") {
  if (o.in != o.out || o.stride != 1) {
    skip_ = std::make_unique<Conv2d>(*this, "skip", convolution(o.in, o.out, 1, o.stride));
    skipbn_ = std::make_unique<BatchNorm>(*this, "skipbn", BatchNormOptions{o.out});
  }
  std::int64_t in = o.in;
  for (int i = 0; i < o.convolutions; ++i) {
    const std::int64_t out = o.widens_first || i == o.convolutions - 1 ? o.out : o.in;
    if (i > 0 || o.begins_with_relu) rep_.add([](const Tensor& x) { return relu(x); });
    rep_.add<Separable>(separable(in, out));
    rep_.add<BatchNorm>({out});
    in = out;
  }
  if (o.stride != 1) rep_.add<MaxPool2d>({.kernel = 3, .stride = o.stride, .padding = 1});
}

Tensor Xception::Block::forward(const Tensor& x) { return rep_(x) + (skip_ ? (*skipbn_)((*skip_)(x)) : x); }

std::vector<std::unique_ptr<Xception::Block>> Xception::blocks(const XceptionOptions& o) {
  std::vector<std::unique_ptr<Block>> blocks;
  const auto add = [&](BlockOptions options) {
    blocks.push_back(std::make_unique<Block>(*this, fmt::format("block{}", blocks.size() + 1), options));
  };
  const auto width = [&](std::int64_t channels) { return scaled(o, channels); };
  add({.in = width(64), .out = width(128), .convolutions = 2, .stride = 2, .begins_with_relu = false});
  add({.in = width(128), .out = width(256), .convolutions = 2, .stride = 2});
  add({.in = width(256), .out = width(728), .convolutions = 2, .stride = 2});
  for (int b = 0; b < o.middle; ++b) add({.in = width(728), .out = width(728)});
  add({.in = width(728), .out = width(1024), .convolutions = 2, .stride = 2, .widens_first = false});
  return blocks;
}

Xception::Xception(XceptionOptions o)
    : conv1_(*this, "conv1", convolution(o.channels, scaled(o, 32), 3, 2)),
      bn1_(*this, "bn1", {scaled(o, 32)}),
      conv2_(*this, "conv2", convolution(scaled(o, 32), scaled(o, 64), 3)),
      bn2_(*this, "bn2", {scaled(o, 64)}),
      blocks_(blocks(o)),
      conv3_(*this, "conv3", separable(scaled(o, 1024), scaled(o, 1536))),
      bn3_(*this, "bn3", {scaled(o, 1536)}),
      conv4_(*this, "conv4", separable(scaled(o, 1536), scaled(o, 2048))),
      bn4_(*this, "bn4", {scaled(o, 2048)}),
      fc_(*this, "fc", {.in = scaled(o, 2048), .out = o.classes}) {}

Tensor Xception::forward(const Tensor& x) {
  Tensor h = relu(bn2_(conv2_(relu(bn1_(conv1_(x))))));
  for (auto& block : blocks_) h = (*block)(h);
  h = relu(bn4_(conv4_(relu(bn3_(conv3_(h))))));
  return fc_(mean(h, {1, 2}));
}

std::vector<FileLayout> Xception::file_layouts() const { return {{.library = "timm"}}; }

}  // namespace tandem::nn
