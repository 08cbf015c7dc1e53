#include <tandem/nn/models/gpt2.h>

#include <cmath>

#include <fmt/format.h>

#include <tandem/nn/attention_layers.h>
#include <tandem/nn/file_layout.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/index.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

constexpr double kDeviation = 0.02;  // of first weights

LinearOptions layer(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .init = normal(kDeviation)};
}

// A layer whose result is added to the sum of all blocks, which has 2·depth of them.
LinearOptions summed_layer(std::int64_t in, const Gpt2Options& o) {
  return {.in = in, .out = o.width, .init = normal(kDeviation / std::sqrt(2.0 * o.depth))};
}

const Gpt2Options& checked(const Gpt2Options& o) {
  require_heads("a GPT-2", o.heads, o.width);
  return o;
}

}  // namespace

Gpt2::Attention::Attention(ModuleBase& parent, const Gpt2Options& o)
    : Module(parent, "attn"),
      heads_(o.heads),
      dropout_(o.attention_dropout),
      c_attn_(*this, "c_attn", layer(o.width, 3 * o.width)),
      c_proj_(*this, "c_proj", summed_layer(o.width, o)),
      resid_dropout_(*this, "resid_dropout", o.dropout) {}

Tensor Gpt2::Attention::forward(const Tensor& x) {
  const Tensor y =
      attention(c_attn_(x), with_dropout({.heads = heads_, .causal = true}, training() ? dropout_ : 0));
  return resid_dropout_(c_proj_(y));
}

Gpt2::Mlp::Mlp(ModuleBase& parent, const Gpt2Options& o)
    : Module(parent, "mlp"),
      c_fc_(*this, "c_fc", layer(o.width, 4 * o.width)),
      c_proj_(*this, "c_proj", summed_layer(4 * o.width, o)),
      dropout_(*this, "dropout", o.dropout) {}

Tensor Gpt2::Mlp::forward(const Tensor& x) { return dropout_(c_proj_(gelu_tanh(c_fc_(x)))); }

Gpt2::Block::Block(ModuleBase& parent, const std::string& name, const Gpt2Options& o)
    : Module(parent, name),
      ln_1_(*this, "ln_1", {.features = o.width}),
      attn_(*this, o),
      ln_2_(*this, "ln_2", {.features = o.width}),
      mlp_(*this, o) {}

Tensor Gpt2::Block::forward(const Tensor& x) {
  const Tensor y = x + attn_(ln_1_(x));
  return y + mlp_(ln_2_(y));
}

Gpt2::Gpt2(Gpt2Options o)
    : options_(checked(o)),
      wte_(*this, "wte", {.count = o.words, .features = o.width, .init = normal(kDeviation)}),
      wpe_(*this, "wpe", {.count = o.positions, .features = o.width, .init = normal(kDeviation)}),
      drop_(*this, "drop", o.embedding_dropout),
      h_(*this, "h"),
      ln_f_(*this, "ln_f", {.features = o.width}) {
  for (int i = 0; i < o.depth; ++i) h_.add(o);
}

Tensor Gpt2::forward(const Tensor& ids) { return linear(features(ids), wte_.weight); }

Tensor Gpt2::features(const Tensor& ids) {
  if (ids.type().rank() != 2 || ids.size(1) > options_.positions)
    throw Error(fmt::format("this GPT-2 takes ids (N,T) of at most {} positions, not {}", options_.positions,
                            to_string(ids.type())));
  const Tensor place = arange(0, static_cast<double>(ids.size(1)));
  Tensor h = drop_(wte_(ids) + wpe_(place));
  for (Block& block : h_) h = block(h);
  return ln_f_(h);
}

std::vector<FileLayout> Gpt2::file_layouts() const {
  FileLayout transformers{.library = "huggingface",
                          .rules = {{"wte.weight", "transformer.wte.weight"},
                                    {"wpe.weight", "transformer.wpe.weight"},
                                    {"h.*.ln_*.*", "transformer.h.*.ln_*.*"},
                                    {"h.*.attn.*.bias", "transformer.h.*.attn.*.bias"},
                                    {"h.*.mlp.*.bias", "transformer.h.*.mlp.*.bias"},
                                    {"ln_f.*", "transformer.ln_f.*"}},
                          .prefix = "transformer.",
                          .ignored = {"h.*.attn.bias", "h.*.attn.masked_bias"},  // the causal mask
                          .tied = {{"lm_head.weight", "wte.weight"}}};
  for (const char* part : {"attn", "mlp"})
    transformers.rules.push_back({.ours = fmt::format("h.*.{}.*.weight", part),
                                  .theirs = fmt::format("transformer.h.*.{}.*.weight", part),
                                  .input_first = true});
  return {transformers};
}

}  // namespace tandem::nn
