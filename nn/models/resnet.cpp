#include <tandem/nn/models/resnet.h>

#include <fmt/format.h>

#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

Conv2dOptions convolution(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return {.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1, .bias = false};
}

int blocks_of(int depth) {
  if (depth < 8 || depth % 6 != 2)
    throw Error(fmt::format("a ResNet for CIFAR has depth {}; it must be 6n + 2, such as 20, 32, 56", depth));
  return (depth - 2) / 6;
}

}  // namespace

BasicBlock::BasicBlock(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t out,
                       std::int64_t stride)
    : Module(parent, name),
      in_(in),
      out_(out),
      stride_(stride),
      conv1_(*this, "conv1", convolution(in, out, stride)),
      bn1_(*this, "bn1", {out}),
      conv2_(*this, "conv2", convolution(out, out, 1)),
      bn2_(*this, "bn2", {out}) {}

Tensor BasicBlock::shortcut(const Tensor& x) const {
  if (in_ == out_ && stride_ == 1) return x;
  const Tensor taken = slice(x, {{1, 0, x.size(1), stride_}, {2, 0, x.size(2), stride_}});
  return pad(taken, -1, (out_ - in_) / 2, (out_ - in_ + 1) / 2);
}

Tensor BasicBlock::forward(const Tensor& x) {
  return relu(bn2_(conv2_(relu(bn1_(conv1_(x))))) + shortcut(x));
}

ResNetStage::ResNetStage(ModuleBase& parent, const std::string& name, int blocks, std::int64_t in,
                         std::int64_t out, std::int64_t stride)
    : Module(parent, name) {
  for (int b = 0; b < blocks; ++b)
    blocks_.push_back(
        std::make_unique<BasicBlock>(*this, std::to_string(b), b == 0 ? in : out, out, b == 0 ? stride : 1));
}

Tensor ResNetStage::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& block : blocks_) h = (*block)(h);
  return h;
}

ResNet::ResNet(ResNetOptions o)
    : conv1_(*this, "conv1", convolution(o.channels, o.width, 1)),
      bn1_(*this, "bn1", {o.width}),
      layer1_(*this, "layer1", blocks_of(o.depth), o.width, o.width, 1),
      layer2_(*this, "layer2", blocks_of(o.depth), o.width, 2 * o.width, 2),
      layer3_(*this, "layer3", blocks_of(o.depth), 2 * o.width, 4 * o.width, 2),
      fc_(*this, "fc", {4 * o.width, o.classes}) {}

Tensor ResNet::forward(const Tensor& x) {
  return fc_(mean(layer3_(layer2_(layer1_(relu(bn1_(conv1_(x)))))), {1, 2}));
}

}  // namespace tandem::nn
