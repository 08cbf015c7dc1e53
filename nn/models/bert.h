#pragma once
#include <memory>

#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

struct BertOptions {
  std::int64_t words = 30522, positions = 512,
               kinds = 2;                   ///< kinds: of tokens, such as first and second text
  std::int64_t padding = 0;                 ///< the word that fills up short texts; -1: none
  std::int64_t width = 768, hidden = 3072;  ///< features of a position, and between the layers of an MLP
  int depth = 12, heads = 12;
  double dropout = 0.1;            ///< of embeddings and results of layers
  double attention_dropout = 0.1;  ///< of attention weights
  double head_dropout = 0.1;       ///< of what a classifier's head reads
};

/// What a BERT reads: ids i32 (N,T), a mask bool (N,T) that is true for words and false for padding, and
/// kinds of tokens i32 (N,T). Undefined: no padding, and all of kind 0.
struct BertInput {
  Tensor ids, mask{}, kinds{};
};

/// What a BERT makes of it: each position's features (N,T,width), and the sample's (N,width), which are the
/// first position's after a layer and a tanh.
struct BertOutput {
  Tensor positions, sample;
};

/// The encoder of Devlin et al. 2019. Modules and first weights are those of transformers' BertModel;
/// queries, keys and values are one layer, `attention.self.qkv`. The row of the word that fills up texts is 0
/// at first, and its lookups do not train it. Throws Error for sequences of more than `positions`.
class Bert final : public ModuleOf<BertOutput(const BertInput&)> {
 public:
  explicit Bert(BertOptions options = {});
  Bert(ModuleBase& parent, const std::string& name, BertOptions options);
  BertOutput forward(const BertInput& input) override;
  std::vector<FileLayout> file_layouts() const override;
  /// The matrix that embeds words.
  const Tensor& words() const { return embeddings_.words.weight; }
  const BertOptions& options() const { return options_; }

 private:
  struct Embeddings final : ModuleOf<Tensor(const BertInput&)> {
    Embeddings(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const BertInput& input) override;
    Embedding words, positions, kinds;
    LayerNorm norm;
    Dropout dropout;
  };
  struct Result final : ModuleOf<Tensor(const Tensor& x, const Tensor& past)> {
    Result(ModuleBase& parent, std::int64_t in, const BertOptions& options);
    Tensor forward(const Tensor& x, const Tensor& past) override;
    Linear dense;
    LayerNorm norm;
    Dropout dropout;
  };
  struct SelfAttention final : ModuleOf<Tensor(const Tensor& x, const Tensor& mask)> {
    SelfAttention(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x, const Tensor& mask) override;
    const int heads;
    const double dropout;
    Linear qkv;
  };
  struct Attention final : ModuleOf<Tensor(const Tensor& x, const Tensor& mask)> {
    Attention(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x, const Tensor& mask) override;
    SelfAttention self;
    Result output;
  };
  struct Intermediate final : nn::Module {
    Intermediate(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x) override;
    Linear dense;
  };
  struct Layer final : ModuleOf<Tensor(const Tensor& x, const Tensor& mask)> {
    Layer(ModuleBase& parent, const std::string& name, const BertOptions& options);
    Tensor forward(const Tensor& x, const Tensor& mask) override;
    Attention attention;
    Intermediate intermediate;
    Result output;
  };
  struct Encoder final : ModuleOf<Tensor(const Tensor& x, const Tensor& mask)> {
    Encoder(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x, const Tensor& mask) override;
    ModuleList<Layer> layers;
  };
  struct Pooler final : nn::Module {
    Pooler(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x) override;
    Linear dense;
  };

  BertOptions options_;
  Embeddings embeddings_;
  Encoder encoder_;
  Pooler pooler_;
};

/// Scores of the word at each position (N,T,words), and of whether the second text follows the first (N,2).
struct BertScores {
  Tensor words, follows;
};

/// BERT with the heads of its first training: masked words and the next sentence. The matrix that embeds
/// words also predicts them. Modules are those of transformers' BertForPreTraining.
class BertForPretraining final : public ModuleOf<BertScores(const BertInput&)> {
 public:
  explicit BertForPretraining(BertOptions options = {});
  BertForPretraining(ModuleBase& parent, const std::string& name, BertOptions options);
  BertScores forward(const BertInput& input) override;
  Bert& bert() { return bert_; }
  /// The scores of what `bert()` makes. Scores of words are products with the words' matrix.
  BertScores scores(const BertOutput& output, const Tensor& words);
  std::vector<FileLayout> file_layouts() const override;

 private:
  struct Transform final : nn::Module {
    Transform(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x) override;
    Linear dense;
    LayerNorm norm;
  };
  struct Predictions final : ModuleOf<Tensor(const Tensor& x, const Tensor& words)> {
    Predictions(ModuleBase& parent, const BertOptions& options);
    Tensor forward(const Tensor& x, const Tensor& words) override;
    Transform transform;
    Tensor bias;
  };
  struct Heads final : ModuleBase {
    Heads(ModuleBase& parent, const BertOptions& options);
    Predictions predictions;
    Linear seq_relationship;
  };

  Bert bert_;
  Heads cls_;
};

/// BERT with a head for classes: (N, classes) of the sample's features. Modules are those of transformers'
/// BertForSequenceClassification.
class BertClassifier final : public ModuleOf<Tensor(const BertInput&)> {
 public:
  explicit BertClassifier(std::int64_t classes, BertOptions options = {});
  Tensor forward(const BertInput& input) override;
  std::vector<FileLayout> file_layouts() const override;

 private:
  Bert bert_;
  Dropout dropout_;
  Linear classifier_;
};

}  // namespace tandem::nn
