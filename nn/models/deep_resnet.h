#pragma once
#include <memory>

#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct DeepResNetOptions {
  int depth = 50;  ///< 18, 34, 50, 101, or 152
  std::int64_t channels = 3, classes = 1000;
  std::int64_t width = 64;  ///< channels of the stem; those of the stages are multiples
};

/// (N,H,W,channels) -> (N, classes): the residual network for ImageNet of He et al. 2016 §4.1. The stem makes
/// images four times smaller; each of the next three stages halves them. From depth 50 on, blocks have three
/// convolutions (1×1, 3×3 with the stride, 1×1), else two. Modules and first weights are torchvision's.
/// Throws Error if there is no such depth.
class DeepResNet final : public Module {
 public:
  explicit DeepResNet(DeepResNetOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  /// What leads past a block: the input, or a 1×1 convolution of it where the shape changes.
  class Block : public Module {
   public:
    Block(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t out,
          std::int64_t stride);

   protected:
    /// Call it last in a constructor, as torchvision declares it last.
    void add_shortcut();
    Tensor shortcut(const Tensor& x);
    const std::int64_t in_, out_, stride_;

   private:
    std::unique_ptr<Sequential> downsample_;
  };
  class TwoConvolutions;
  class Bottleneck;
  class Stage final : public Module {
   public:
    Stage(ModuleBase& parent, const std::string& name, int blocks, bool bottlenecks, std::int64_t in,
          std::int64_t width, std::int64_t stride);
    Tensor forward(const Tensor& x) override;

   private:
    std::vector<std::unique_ptr<Block>> blocks_;
  };

  Conv2d conv1_;
  BatchNorm bn1_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<Linear> fc_;
};

}  // namespace tandem::nn
