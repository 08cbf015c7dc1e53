#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/attention_layers.h>

namespace tandem::nn {

struct VitOptions {
  std::int64_t image = 224, patch = 16;  ///< pixels along each side
  std::int64_t channels = 3, classes = 1000;
  std::int64_t width = 768, hidden = 3072;  ///< features of a position, and between the layers of an MLP
  int depth = 12, heads = 12;
  double dropout = 0, attention_dropout = 0;
  double epsilon = 1e-6;  ///< of the norms
};

/// (N,image,image,channels) -> (N, classes): the Vision Transformer of Dosovitskiy et al. 2021. Each patch of
/// the image is a position, and a class token is the first one. Modules and first weights are torchvision's.
/// Throws Error if the patches do not fill the image, or the heads do not divide the width.
class Vit final : public Module {
 public:
  explicit Vit(VitOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  class Mlp final : public Module {
   public:
    Mlp(ModuleBase& parent, const VitOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    Linear first_;
    Dropout drop_first_;
    Linear second_;
    Dropout drop_second_;
  };
  class Block final : public Module {
   public:
    Block(ModuleBase& parent, const std::string& name, const VitOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    LayerNorm ln_1_;
    SelfAttention self_attention_;
    Dropout dropout_;
    LayerNorm ln_2_;
    Mlp mlp_;
  };
  class Layers final : public Module {
   public:
    Layers(ModuleBase& parent, const VitOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    std::vector<std::unique_ptr<Block>> blocks_;
  };
  class Encoder final : public Module {
   public:
    Encoder(ModuleBase& parent, const VitOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    Tensor pos_embedding_;
    Dropout dropout_;
    Layers layers_;
    LayerNorm ln_;
  };
  class Heads final : public Module {
   public:
    Heads(ModuleBase& parent, const VitOptions& options);
    Tensor forward(const Tensor& x) override { return head_(x); }

   private:
    Linear head_;
  };

  VitOptions options_;
  Tensor class_token_;
  Conv2d conv_proj_;
  Encoder encoder_;
  Heads heads_;
};

}  // namespace tandem::nn
