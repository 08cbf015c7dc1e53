#include <tandem/nn/models/vit.h>

#include <fmt/format.h>

#include <tandem/nn/drawn_parameter.h>
#include <tandem/nn/file_layout.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

VitOptions checked(VitOptions o) {
  if (o.patch < 1 || o.image % o.patch != 0)
    throw Error(
        fmt::format("a ViT's patches of {0} × {0} do not fill images of {1} × {1}", o.patch, o.image));
  require_heads("a ViT", o.heads, o.width);
  return o;
}

LinearOptions layer(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .init = xavier_uniform(), .bias_init = normal(1e-6)};
}

}  // namespace

Vit::Mlp::Mlp(ModuleBase& parent, const VitOptions& o)
    : Module(parent, "mlp"),
      first_(*this, "0", layer(o.width, o.hidden)),
      drop_first_(*this, "2", o.dropout),
      second_(*this, "3", layer(o.hidden, o.width)),
      drop_second_(*this, "4", o.dropout) {}

Tensor Vit::Mlp::forward(const Tensor& x) { return drop_second_(second_(drop_first_(gelu(first_(x))))); }

Vit::Block::Block(ModuleBase& parent, const std::string& name, const VitOptions& o)
    : Module(parent, name),
      ln_1_(*this, "ln_1", {.features = o.width, .eps = o.epsilon}),
      self_attention_(*this, "self_attention",
                      {.features = o.width, .heads = o.heads, .dropout = o.attention_dropout}),
      dropout_(*this, "dropout", o.dropout),
      ln_2_(*this, "ln_2", {.features = o.width, .eps = o.epsilon}),
      mlp_(*this, o) {}

Tensor Vit::Block::forward(const Tensor& x) {
  const Tensor y = x + dropout_(self_attention_(ln_1_(x), {}));
  return y + mlp_(ln_2_(y));
}

Vit::Layers::Layers(ModuleBase& parent, const VitOptions& o) : Module(parent, "layers") {
  for (int i = 0; i < o.depth; ++i)
    blocks_.push_back(std::make_unique<Block>(*this, fmt::format("encoder_layer_{}", i), o));
}

Tensor Vit::Layers::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& block : blocks_) h = (*block)(h);
  return h;
}

Vit::Encoder::Encoder(ModuleBase& parent, const VitOptions& o)
    : Module(parent, "encoder"),
      pos_embedding_(add_parameter(drawn_parameter(
          "pos_embedding", {1, (o.image / o.patch) * (o.image / o.patch) + 1, o.width}, {}, normal(0.02)))),
      dropout_(*this, "dropout", o.dropout),
      layers_(*this, o),
      ln_(*this, "ln", {.features = o.width, .eps = o.epsilon}) {}

Tensor Vit::Encoder::forward(const Tensor& x) { return ln_(layers_(dropout_(x + pos_embedding_))); }

Vit::Heads::Heads(ModuleBase& parent, const VitOptions& o)
    : Module(parent, "heads"), head_(*this, "head", {.in = o.width, .out = o.classes, .init = constant(0)}) {}

Vit::Vit(VitOptions options)
    : options_(checked(options)),
      class_token_(add_parameter(drawn_parameter("class_token", {1, 1, options.width}, {}, constant(0)))),
      conv_proj_(*this, "conv_proj",
                 {.in = options.channels,
                  .out = options.width,
                  .kernel = options.patch,
                  .stride = options.patch,
                  .init = lecun_normal()}),  // torchvision cuts it at ±2, some fifty deviations
      encoder_(*this, options),
      heads_(*this, options) {}

Tensor Vit::forward(const Tensor& x) {
  const VitOptions& o = options_;
  if (x.type().rank() != 4 || x.size(1) != o.image || x.size(2) != o.image)
    throw Error(fmt::format("this ViT takes images of {0} × {0}, not {1}", o.image, to_string(x.type())));
  const std::int64_t samples = x.size(0), patches = o.image / o.patch * (o.image / o.patch);
  const Tensor tokens = reshape(conv_proj_(x), {samples, patches, o.width}),
               token = broadcast_to(class_token_, {samples, 1, o.width});
  const Tensor encoded = encoder_(concat({token, tokens}, 1));
  return heads_(reshape(slice(encoded, 1, 0, 1), {samples, o.width}));
}

std::vector<FileLayout> Vit::file_layouts() const {
  const std::string block = "encoder.layers.encoder_layer_*.";
  const FileLayout timm{.library = "timm",
                        .rules = {{"class_token", "cls_token"},
                                  {"encoder.pos_embedding", "pos_embed"},
                                  {"conv_proj.*", "patch_embed.proj.*"},
                                  {block + "ln_*.*", "blocks.*.norm*.*"},
                                  {block + "self_attention.in_proj_*", "blocks.*.attn.qkv.*"},
                                  {block + "self_attention.out_proj.*", "blocks.*.attn.proj.*"},
                                  {block + "mlp.0.*", "blocks.*.mlp.fc1.*"},
                                  {block + "mlp.3.*", "blocks.*.mlp.fc2.*"},
                                  {"encoder.ln.*", "norm.*"},
                                  {"heads.head.*", "head.*"}}};
  const std::string layer = "vit.encoder.layer.*.";
  FileLayout transformers{.library = "huggingface",
                          .rules = {{"class_token", "vit.embeddings.cls_token"},
                                    {"encoder.pos_embedding", "vit.embeddings.position_embeddings"},
                                    {"conv_proj.*", "vit.embeddings.patch_embeddings.projection.*"},
                                    {block + "ln_1.*", layer + "layernorm_before.*"},
                                    {block + "ln_2.*", layer + "layernorm_after.*"},
                                    {block + "self_attention.out_proj.*", layer + "attention.output.dense.*"},
                                    {block + "mlp.0.*", layer + "intermediate.dense.*"},
                                    {block + "mlp.3.*", layer + "output.dense.*"},
                                    {"encoder.ln.*", "vit.layernorm.*"},
                                    {"heads.head.*", "classifier.*"}},
                          .prefix = "vit."};
  const std::string attention = layer + "attention.attention.";
  for (LayoutRule& rule : three_layers(block + "self_attention.in_proj_*", attention + "query.*",
                                       attention + "key.*", attention + "value.*"))
    transformers.rules.push_back(std::move(rule));
  return {{.library = "torchvision"}, timm, transformers};
}

}  // namespace tandem::nn
