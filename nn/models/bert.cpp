#include <tandem/nn/models/bert.h>

#include <cstring>

#include <fmt/format.h>

#include <tandem/nn/attention_layers.h>
#include <tandem/nn/drawn_parameter.h>
#include <tandem/nn/file_layout.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

constexpr double kDeviation = 0.02;  // of first weights
constexpr double kEpsilon = 1e-12;   // of all norms

LinearOptions layer(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .init = normal(kDeviation)};
}
LayerNormOptions norm_of(std::int64_t features) { return {.features = features, .eps = kEpsilon}; }
EmbeddingOptions table(std::int64_t count, std::int64_t features) {
  return {.count = count, .features = features, .init = normal(kDeviation)};
}

// The word that fills up short texts begins as zeros.
EmbeddingOptions words_of(const BertOptions& o) {
  EmbeddingOptions options = table(o.words, o.width);
  options.padding = o.padding;
  if (o.padding < 0) return options;
  options.init = [draw = options.init, o](const TensorType& type, Fans fans, const std::string& path,
                                          std::uint64_t seed) {
    Tensor t = draw(type, fans, path, seed);
    const std::int64_t row = type.bytes() / type.shape[0];
    std::memset(static_cast<std::byte*>(t.data()) + o.padding * row, 0, static_cast<std::size_t>(row));
    return t;
  };
  return options;
}

const BertOptions& checked(const BertOptions& o) {
  require_heads("a BERT", o.heads, o.width);
  return o;
}

// `ours` is the path of the Bert in the model.
FileLayout transformers_layout(const std::string& ours) {
  const std::string self = ours + "encoder.layer.*.attention.self.";
  return {.library = "huggingface",
          .rules = three_layers(self + "qkv.*", self + "query.*", self + "key.*", self + "value.*"),
          .prefix = "bert.",
          .old_endings = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}},
          .ignored = {"embeddings.position_ids"}};
}

}  // namespace

Bert::Embeddings::Embeddings(ModuleBase& parent, const BertOptions& o)
    : ModuleOf(parent, "embeddings"),
      words(*this, "word_embeddings", words_of(o)),
      positions(*this, "position_embeddings", table(o.positions, o.width)),
      kinds(*this, "token_type_embeddings", table(o.kinds, o.width)),
      norm(*this, "LayerNorm", norm_of(o.width)),
      dropout(*this, "dropout", o.dropout) {}

Tensor Bert::Embeddings::forward(const BertInput& in) {
  const Tensor place = arange(0, static_cast<double>(in.ids.size(1)));
  const Tensor kind = in.kinds ? in.kinds : Tensor::zeros({DType::i32, in.ids.shape()});
  return dropout(norm(words(in.ids) + kinds(kind) + positions(place)));
}

Bert::Result::Result(ModuleBase& parent, std::int64_t in, const BertOptions& o)
    : ModuleOf(parent, "output"),
      dense(*this, "dense", layer(in, o.width)),
      norm(*this, "LayerNorm", norm_of(o.width)),
      dropout(*this, "dropout", o.dropout) {}
Tensor Bert::Result::forward(const Tensor& x, const Tensor& past) { return norm(dropout(dense(x)) + past); }

Bert::SelfAttention::SelfAttention(ModuleBase& parent, const BertOptions& o)
    : ModuleOf(parent, "self"),
      heads(o.heads),
      dropout(o.attention_dropout),
      qkv(*this, "qkv", layer(o.width, 3 * o.width)) {}
Tensor Bert::SelfAttention::forward(const Tensor& x, const Tensor& mask) {
  return tandem::attention(qkv(x),
                           with_dropout({.heads = heads, .key_mask = mask}, training() ? dropout : 0));
}

Bert::Attention::Attention(ModuleBase& parent, const BertOptions& o)
    : ModuleOf(parent, "attention"), self(*this, o), output(*this, o.width, o) {}
Tensor Bert::Attention::forward(const Tensor& x, const Tensor& mask) { return output(self(x, mask), x); }

Bert::Intermediate::Intermediate(ModuleBase& parent, const BertOptions& o)
    : Module(parent, "intermediate"), dense(*this, "dense", layer(o.width, o.hidden)) {}
Tensor Bert::Intermediate::forward(const Tensor& x) { return gelu(dense(x)); }

Bert::Layer::Layer(ModuleBase& parent, const std::string& name, const BertOptions& o)
    : ModuleOf(parent, name), attention(*this, o), intermediate(*this, o), output(*this, o.hidden, o) {}
Tensor Bert::Layer::forward(const Tensor& x, const Tensor& mask) {
  const Tensor y = attention(x, mask);
  return output(intermediate(y), y);
}

Bert::Encoder::Encoder(ModuleBase& parent, const BertOptions& o)
    : ModuleOf(parent, "encoder"), layers(*this, "layer") {
  for (int i = 0; i < o.depth; ++i) layers.add(o);
}
Tensor Bert::Encoder::forward(const Tensor& x, const Tensor& mask) {
  Tensor h = x;
  for (Layer& one : layers) h = one(h, mask);
  return h;
}

Bert::Pooler::Pooler(ModuleBase& parent, const BertOptions& o)
    : Module(parent, "pooler"), dense(*this, "dense", layer(o.width, o.width)) {}
Tensor Bert::Pooler::forward(const Tensor& x) {
  return tanh(dense(reshape(slice(x, 1, 0, 1), {x.size(0), x.size(2)})));
}

Bert::Bert(BertOptions o)
    : options_(checked(o)), embeddings_(*this, o), encoder_(*this, o), pooler_(*this, o) {}
Bert::Bert(ModuleBase& parent, const std::string& name, BertOptions o)
    : ModuleOf(parent, name),
      options_(checked(o)),
      embeddings_(*this, o),
      encoder_(*this, o),
      pooler_(*this, o) {}

BertOutput Bert::forward(const BertInput& in) {
  if (in.ids.type().rank() != 2 || in.ids.size(1) > options_.positions)
    throw Error(fmt::format("this BERT takes ids (N,T) of at most {} positions, not {}", options_.positions,
                            to_string(in.ids.type())));
  const Tensor positions = encoder_(embeddings_(in), in.mask);
  return {positions, pooler_(positions)};
}

BertForPretraining::Transform::Transform(ModuleBase& parent, const BertOptions& o)
    : Module(parent, "transform"),
      dense(*this, "dense", layer(o.width, o.width)),
      norm(*this, "LayerNorm", norm_of(o.width)) {}
Tensor BertForPretraining::Transform::forward(const Tensor& x) { return norm(gelu(dense(x))); }

BertForPretraining::Predictions::Predictions(ModuleBase& parent, const BertOptions& o)
    : ModuleOf(parent, "predictions"),
      transform(*this, o),
      bias(add_parameter(drawn_parameter("bias", {o.words}, {}, constant(0)))) {}
Tensor BertForPretraining::Predictions::forward(const Tensor& x, const Tensor& words) {
  return linear(transform(x), words, bias);
}

BertForPretraining::Heads::Heads(ModuleBase& parent, const BertOptions& o)
    : ModuleBase(parent, "cls"),
      predictions(*this, o),
      seq_relationship(*this, "seq_relationship", layer(o.width, 2)) {}

BertForPretraining::BertForPretraining(BertOptions o) : bert_(*this, "bert", o), cls_(*this, o) {}
BertForPretraining::BertForPretraining(ModuleBase& parent, const std::string& name, BertOptions o)
    : ModuleOf(parent, name), bert_(*this, "bert", o), cls_(*this, o) {}
BertScores BertForPretraining::forward(const BertInput& input) { return scores(bert_(input), bert_.words()); }
BertScores BertForPretraining::scores(const BertOutput& output, const Tensor& words) {
  return {cls_.predictions(output.positions, words), cls_.seq_relationship(output.sample)};
}

BertClassifier::BertClassifier(std::int64_t classes, BertOptions o)
    : bert_(*this, "bert", o),
      dropout_(*this, "dropout", o.head_dropout),
      classifier_(*this, "classifier", layer(o.width, classes)) {}
Tensor BertClassifier::forward(const BertInput& input) { return classifier_(dropout_(bert_(input).sample)); }

std::vector<FileLayout> Bert::file_layouts() const { return {transformers_layout("")}; }
std::vector<FileLayout> BertClassifier::file_layouts() const { return {transformers_layout("bert.")}; }
std::vector<FileLayout> BertForPretraining::file_layouts() const {
  FileLayout layout = transformers_layout("bert.");
  layout.tied = {{"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"},
                 {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  return {layout};
}

}  // namespace tandem::nn
