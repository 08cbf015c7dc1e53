#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/layers.h>

namespace tandem::nn {

struct ConvNetOptions {
  std::int64_t channels = 3, classes = 10;
  std::vector<std::int64_t> widths = {16, 32, 64};
};

/// 3×3 convolution, batch norm, relu, 2×2 max pool: (N, H, W, in) -> (N, H/2, W/2, out).
class ConvBlock final : public Module {
 public:
  ConvBlock(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t out)
      : Module(parent, name),
        conv_(*this, "conv", {.in = in, .out = out, .kernel = 3, .padding = 1, .bias = false}),
        norm_(*this, "norm", {.channels = out}) {}
  Tensor forward(const Tensor& x) override;

 private:
  Conv2d conv_;
  BatchNorm norm_;
};

/// (N, H, W, channels) -> (N, classes): a ConvBlock per width, global average pooling, a linear head.
class ConvNet final : public Module {
 public:
  explicit ConvNet(ConvNetOptions options = {});
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::unique_ptr<ConvBlock>> blocks_;
  std::unique_ptr<Linear> head_;
};

}  // namespace tandem::nn
