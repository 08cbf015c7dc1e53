#pragma once
#include <tandem/nn/attention_layers.h>
#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct TransformerOptions {
  std::int64_t words = 20'000, positions = 512, classes = 2;
  std::int64_t width = 512;   ///< features of a position
  std::int64_t hidden = 512;  ///< features between the two layers after an attention
  int encoders = 6, decoders = 6, heads = 8;
  double dropout = 0.1;
};

/// ids i32 (N,T) -> (N, classes): the Transformer of Vaswani et al. 2017 as a classifier of texts, as
/// DualPipe's paper trains it (Chen et al. 2018, §4.1). Encoder and decoder read the same words; the mean of
/// what the decoder makes of all positions is classified. Blocks are those of torch.nn.Transformer, with its
/// first weights. Throws Error for texts of more than `positions` words.
class Transformer final : public Module {
 public:
  explicit Transformer(TransformerOptions options = {});
  Tensor forward(const Tensor& ids) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  /// Two layers with relu between them.
  class FeedForward final : public Module {
   public:
    FeedForward(ModuleBase& parent, const TransformerOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    Linear linear1_;
    Dropout dropout_;
    Linear linear2_;
  };
  class EncoderLayer final : public Module {
   public:
    EncoderLayer(ModuleBase& parent, const std::string& name, const TransformerOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    SelfAttention self_attn_;
    FeedForward feed_forward_;
    LayerNorm norm1_, norm2_;
    Dropout dropout1_, dropout2_;
  };
  class DecoderLayer final : public ModuleOf<Tensor(const Tensor& x, const Tensor& memory)> {
   public:
    DecoderLayer(ModuleBase& parent, const std::string& name, const TransformerOptions& options);
    Tensor forward(const Tensor& x, const Tensor& memory) override;

   private:
    SelfAttention self_attn_;
    CrossAttention multihead_attn_;
    FeedForward feed_forward_;
    LayerNorm norm1_, norm2_, norm3_;
    Dropout dropout1_, dropout2_, dropout3_;
  };

  TransformerOptions options_;
  Embedding embedding_;
  Tensor positions_;
  Dropout dropout_;
  ModuleList<EncoderLayer> encoder_;
  LayerNorm encoder_norm_;
  ModuleList<DecoderLayer> decoder_;
  LayerNorm decoder_norm_;
  Linear head_;
};

}  // namespace tandem::nn
