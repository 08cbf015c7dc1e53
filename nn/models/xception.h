#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct XceptionOptions {
  std::int64_t channels = 3, classes = 1000;
  std::int64_t width =
      32;          ///< channels of the first convolution; those of the other layers are scaled with it
  int middle = 8;  ///< blocks of the middle flow
};

/// (N,H,W,channels) -> (N, classes): Xception of Chollet 2017, Fig. 5, made for images of 299×299. Blocks of
/// separable convolutions with shortcuts: an entry flow that makes the image 16 times smaller, a middle flow,
/// and an exit flow, which halves it again. Modules and first weights are those of timm's legacy_xception.
class Xception final : public Module {
 public:
  explicit Xception(XceptionOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  /// A depthwise convolution (`conv1`), then a 1×1 convolution (`pointwise`).
  class Separable final : public Module {
   public:
    using Options = Conv2dOptions;
    Separable(ModuleBase& parent, const std::string& name, const Conv2dOptions& options);
    Tensor forward(const Tensor& x) override { return pointwise_(conv1_(x)); }

   private:
    Conv2d conv1_, pointwise_;
  };
  struct BlockOptions {
    std::int64_t in = 0, out = 0;
    int convolutions = 3;
    std::int64_t stride = 1;
    bool begins_with_relu = true;
    bool widens_first = true;  ///< the first convolution has the new number of channels; otherwise the last
  };
  class Block final : public Module {
   public:
    Block(ModuleBase& parent, const std::string& name, const BlockOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    std::unique_ptr<Conv2d> skip_;
    std::unique_ptr<BatchNorm> skipbn_;
    Sequential rep_;
  };
  std::vector<std::unique_ptr<Block>> blocks(const XceptionOptions& options);

  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Separable conv3_;
  BatchNorm bn3_;
  Separable conv4_;
  BatchNorm bn4_;
  Linear fc_;
};

}  // namespace tandem::nn
