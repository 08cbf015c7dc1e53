#pragma once
#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct Gpt2Options {
  std::int64_t words = 50257, positions = 1024;
  std::int64_t width = 768;  ///< features of a position; four times as many between the layers of an MLP
  int depth = 12, heads = 12;
  double dropout = 0.1;                                     ///< of results of attention and MLPs
  double embedding_dropout = 0.1, attention_dropout = 0.1;  ///< of embeddings; of attention weights
};

/// ids i32 (N,T) -> (N,T,words): scores of the word that follows each position (Radford et al. 2019). The
/// matrix that embeds words also predicts them. Modules and first weights are those of transformers'
/// GPT2LMHeadModel, without the prefix `transformer`. Throws Error for sequences of more than `positions`.
class Gpt2 final : public Module {
 public:
  explicit Gpt2(Gpt2Options options = {});
  Tensor forward(const Tensor& ids) override;
  /// The features (N,T,width) of each position. Their products with the words' matrix are the scores.
  Tensor features(const Tensor& ids);
  /// The matrix that embeds words.
  const Tensor& words() const { return wte_.weight; }
  std::vector<FileLayout> file_layouts() const override;

 private:
  class Attention final : public Module {
   public:
    Attention(ModuleBase& parent, const Gpt2Options& options);
    Tensor forward(const Tensor& x) override;

   private:
    const int heads_;
    const double dropout_;
    Linear c_attn_, c_proj_;
    Dropout resid_dropout_;
  };
  class Mlp final : public Module {
   public:
    Mlp(ModuleBase& parent, const Gpt2Options& options);
    Tensor forward(const Tensor& x) override;

   private:
    Linear c_fc_, c_proj_;
    Dropout dropout_;
  };
  class Block final : public Module {
   public:
    Block(ModuleBase& parent, const std::string& name, const Gpt2Options& options);
    Tensor forward(const Tensor& x) override;

   private:
    LayerNorm ln_1_;
    Attention attn_;
    LayerNorm ln_2_;
    Mlp mlp_;
  };

  Gpt2Options options_;
  Embedding wte_, wpe_;
  Dropout drop_;
  ModuleList<Block> h_;
  LayerNorm ln_f_;
};

}  // namespace tandem::nn
