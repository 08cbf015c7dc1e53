#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/layers.h>

namespace tandem::nn {

struct Vgg16Options {
  std::int64_t channels = 3, classes = 10;
  std::int64_t width = 64;     ///< channels of the first group; the next have 2, 4, 8 and 8 times as many
  std::int64_t hidden = 4096;  ///< outputs of each of the two layers before the head
  double dropout = 0.5;
  /// The image that the classifier sees, along each side: 1 for images of 32×32, 7 for ImageNet's 224×224.
  /// Larger images are averaged to it.
  std::int64_t cells = 1;
  bool torchvision_weights = false;  ///< first weights are torchvision's, otherwise He et al.'s
};

/// (N,H,W,channels) -> (N, classes): configuration D of Simonyan & Zisserman 2015. Thirteen 3×3
/// convolutions with relu in five groups, a max pool after each group, then linear layers
/// 512·cells²-4096-4096-classes with dropout. Without norms it learns CIFAR's images only from He et al.'s
/// initial weights. Modules are named as in torchvision: features.0, features.2, …, classifier.0, .3, .6.
class Vgg16 final : public Module {
 public:
  explicit Vgg16(Vgg16Options options = {});
  Tensor forward(const Tensor& x) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  class Features final : public Module {
   public:
    Features(ModuleBase& parent, const Vgg16Options& options);
    Tensor forward(const Tensor& x) override;

   private:
    std::vector<std::vector<std::unique_ptr<Conv2d>>> groups_;
  };
  class Classifier final : public Module {
   public:
    Classifier(ModuleBase& parent, const Vgg16Options& options);
    Tensor forward(const Tensor& x) override;

   private:
    Linear first_;
    Dropout drop_first_;
    Linear second_;
    Dropout drop_second_;
    Linear head_;
  };
  const std::int64_t cells_;
  Features features_;
  Classifier classifier_;
};

}  // namespace tandem::nn
