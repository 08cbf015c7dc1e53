#include <tandem/nn/models/transformer.h>

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <tandem/nn/file_layout.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

// sin(t/10000^(2i/width)) in feature 2i of position t, and the cosine in the next one.
Tensor waves(const TensorType& type) {
  std::vector<double> values;
  const std::int64_t width = type.shape[1];
  for (std::int64_t t = 0; t < type.shape[0]; ++t)
    for (std::int64_t f = 0; f < width; ++f) {
      const double angle = static_cast<double>(t) /
                           std::pow(10'000.0, static_cast<double>(f - f % 2) / static_cast<double>(width));
      values.push_back(f % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  return Tensor::from(values, type.shape, type.dtype);
}

LinearOptions layer(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .init = xavier_uniform(), .bias_init = default_uniform()};
}

// The first weights of torch.nn.Transformer, which draws all matrices alike.
template <class Attention> typename Attention::Options attention_options(const TransformerOptions& o) {
  return {.features = o.width, .heads = o.heads, .dropout = o.dropout, .out_init = xavier_uniform()};
}

const TransformerOptions& checked(const TransformerOptions& o) {
  require_heads("a Transformer", o.heads, o.width);
  return o;
}

}  // namespace

Transformer::FeedForward::FeedForward(ModuleBase& parent, const TransformerOptions& o)
    : Module(parent, "feed_forward"),
      linear1_(*this, "linear1", layer(o.width, o.hidden)),
      dropout_(*this, "dropout", o.dropout),
      linear2_(*this, "linear2", layer(o.hidden, o.width)) {}

Tensor Transformer::FeedForward::forward(const Tensor& x) { return linear2_(dropout_(relu(linear1_(x)))); }

Transformer::EncoderLayer::EncoderLayer(ModuleBase& parent, const std::string& name,
                                        const TransformerOptions& o)
    : Module(parent, name),
      self_attn_(*this, "self_attn", attention_options<SelfAttention>(o)),
      feed_forward_(*this, o),
      norm1_(*this, "norm1", {o.width}),
      norm2_(*this, "norm2", {o.width}),
      dropout1_(*this, "dropout1", o.dropout),
      dropout2_(*this, "dropout2", o.dropout) {}

Tensor Transformer::EncoderLayer::forward(const Tensor& x) {
  const Tensor y = norm1_(x + dropout1_(self_attn_(x, Tensor())));
  return norm2_(y + dropout2_(feed_forward_(y)));
}

Transformer::DecoderLayer::DecoderLayer(ModuleBase& parent, const std::string& name,
                                        const TransformerOptions& o)
    : Module(parent, name),
      self_attn_(*this, "self_attn", attention_options<SelfAttention>(o)),
      multihead_attn_(*this, "multihead_attn", attention_options<CrossAttention>(o)),
      feed_forward_(*this, o),
      norm1_(*this, "norm1", {o.width}),
      norm2_(*this, "norm2", {o.width}),
      norm3_(*this, "norm3", {o.width}),
      dropout1_(*this, "dropout1", o.dropout),
      dropout2_(*this, "dropout2", o.dropout),
      dropout3_(*this, "dropout3", o.dropout) {}

Tensor Transformer::DecoderLayer::forward(const Tensor& x, const Tensor& memory) {
  const Tensor y = norm1_(x + dropout1_(self_attn_(x, Tensor())));
  const Tensor z = norm2_(y + dropout2_(multihead_attn_(y, memory)));
  return norm3_(z + dropout3_(feed_forward_(z)));
}

Transformer::Transformer(TransformerOptions o)
    : options_(checked(o)),
      embedding_(*this, "embedding", {.count = o.words, .features = o.width}),
      positions_(add_parameter({.name = "positions",
                                .tensor = Tensor::zeros({default_dtype(), {o.positions, o.width}}),
                                .buffer = true,
                                .initialize = [](const TensorType& type, const std::string&,
                                                 std::uint64_t) { return waves(type); }})),
      dropout_(*this, "dropout", o.dropout),
      encoder_(*this, "encoder"),
      encoder_norm_(*this, "encoder_norm", {o.width}),
      decoder_(*this, "decoder"),
      decoder_norm_(*this, "decoder_norm", {o.width}),
      head_(*this, "head", {.in = o.width, .out = o.classes}) {
  for (int i = 0; i < o.encoders; ++i) encoder_.add(o);
  for (int i = 0; i < o.decoders; ++i) decoder_.add(o);
}

Tensor Transformer::forward(const Tensor& ids) {
  if (ids.type().rank() != 2 || ids.size(1) > options_.positions)
    throw Error(fmt::format("this Transformer takes ids (N,T) of at most {} positions, not {}",
                            options_.positions, to_string(ids.type())));
  const Tensor x = dropout_(embedding_(ids) + slice(positions_, 0, 0, ids.size(1)));
  Tensor memory = x;
  for (EncoderLayer& layer : encoder_) memory = layer(memory);
  memory = encoder_norm_(memory);
  Tensor y = x;
  for (DecoderLayer& layer : decoder_) y = layer(y, memory);
  return head_(mean(decoder_norm_(y), {1}));
}

// The blocks of a torch.nn.Transformer called `transformer`, beside an embedding and a head.
std::vector<FileLayout> Transformer::file_layouts() const {
  FileLayout torch{.library = "torch", .rules = {}, .prefix = "transformer."};
  for (const char* coder : {"encoder", "decoder"}) {
    const std::string ours = fmt::format("{}.*.", coder),
                      theirs = fmt::format("transformer.{}.layers.*.", coder);
    for (LayoutRule& rule :
         LayoutRules{{ours + "self_attn.*", theirs + "self_attn.*"},
                     {ours + "*_attn.out_proj.*", theirs + "*_attn.out_proj.*"},
                     {ours + "feed_forward.*.*", theirs + "*.*"},
                     {ours + "norm*.*", theirs + "norm*.*"},
                     {fmt::format("{}_norm.*", coder), fmt::format("transformer.{}.norm.*", coder)}})
      torch.rules.push_back(std::move(rule));
  }
  for (int part = 0; part < 3; ++part)
    for (const char* kind : {"weight", "bias"})
      torch.rules.push_back(
          {.ours = fmt::format("decoder.*.multihead_attn.{}.{}", "qkv"[part], kind),
           .theirs = fmt::format("transformer.decoder.layers.*.multihead_attn.in_proj_{}", kind),
           .their_part = part,
           .their_parts = 3});
  return {torch};
}

}  // namespace tandem::nn
