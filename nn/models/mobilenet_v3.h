#pragma once
#include <memory>

#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct MobileNetV3Options {
  std::int64_t channels = 3, classes = 1000;
  double width = 1;            ///< multiplies the channels of all layers, which stay multiples of 8
  std::int64_t hidden = 1280;  ///< outputs of the layer before the head
  double dropout = 0.2;
};

/// (N,H,W,channels) -> (N, classes): MobileNetV3-Large of Howard et al. 2019, Table 1. Fifteen inverted
/// residuals expand the channels, convolve each by itself, weigh some by what the whole image says, and
/// project them back. The image becomes 32 times smaller. Modules and first weights are torchvision's.
class MobileNetV3 final : public Module {
 public:
  explicit MobileNetV3(MobileNetV3Options options = {});
  Tensor forward(const Tensor& x) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  Sequential features_;
  Sequential classifier_;
};

}  // namespace tandem::nn
