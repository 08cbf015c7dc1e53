#pragma once
#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct InceptionV4Options {
  std::int64_t channels = 3, classes = 1000;
  std::int64_t width =
      32;  ///< channels of the first convolution; those of the other layers are scaled with it
  int blocks_a = 4, blocks_b = 7, blocks_c = 3;
  /// All convolutions and pools are padded so that they keep ⌈size/stride⌉ pixels, for small images.
  bool keeps_size = false;
};

/// (N,H,W,channels) -> (N, classes): Inception-v4 of Szegedy et al. 2017, Figs. 3 to 9, made for images of
/// 299×299. A stem, then blocks whose branches see windows of different sizes, at three sizes of the image.
/// Modules and first weights are timm's: features.0, …, last_linear.
class InceptionV4 final : public Module {
 public:
  explicit InceptionV4(InceptionV4Options options = {});
  Tensor forward(const Tensor& x) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  Sequential features_;
  Linear last_linear_;
};

}  // namespace tandem::nn
