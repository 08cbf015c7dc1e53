#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/layers.h>

namespace tandem::nn {

struct ResNetOptions {
  int depth = 20;  ///< 6n + 2: a convolution, three stages of n blocks of two convolutions, a head
  std::int64_t channels = 3, classes = 10;
  std::int64_t width = 16;  ///< channels of the first stage; the next two have twice and four times as many
};

/// conv-norm-relu-conv-norm, plus the input, then relu: (N,H,W,in) -> (N,H/stride,W/stride,out). If the shape
/// changes, the skip takes every `stride`-th pixel and pads the channels with zeros on both sides.
class BasicBlock final : public Module {
 public:
  BasicBlock(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t out,
             std::int64_t stride);
  Tensor forward(const Tensor& x) override;

 private:
  Tensor shortcut(const Tensor& x) const;
  std::int64_t in_, out_, stride_;
  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
};

/// A sequence of blocks; the first has the stride.
class ResNetStage final : public Module {
 public:
  ResNetStage(ModuleBase& parent, const std::string& name, int blocks, std::int64_t in, std::int64_t out,
              std::int64_t stride);
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::unique_ptr<BasicBlock>> blocks_;
};

/// (N,32,32,channels) -> (N, classes): the residual network for CIFAR of He et al. 2016 §4.2, with identity
/// shortcuts (option A). Throws Error if the depth is not 6n + 2.
class ResNet final : public Module {
 public:
  explicit ResNet(ResNetOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d conv1_;
  BatchNorm bn1_;
  ResNetStage layer1_, layer2_, layer3_;
  Linear fc_;
};

}  // namespace tandem::nn
