#pragma once
#include <tandem/nn/layers.h>
#include <tandem/ops/attention.h>

namespace tandem::nn {

/// Throws Error naming the network, as "a ViT", unless its heads divide its width.
void require_heads(const std::string& network, int heads, std::int64_t width);

/// Returns the options with this dropout, drawn with the model's seed.
AttentionOptions with_dropout(AttentionOptions options, double dropout);

struct SelfAttentionOptions {
  std::int64_t features = 0;
  int heads = 1;
  bool causal = false;                       ///< a position sees no later ones
  double dropout = 0;                        ///< of the attention's weights, while training
  Initializer out_init = default_uniform();  ///< of `out_proj`'s matrix
};
/// (N,T,features) and an optional mask bool (N,T), true where a position may be seen (PyTorch's
/// key_padding_mask is the opposite) -> (N,T,features): projects to queries, keys and values, attends, and
/// projects the result. Parameters `in_proj_weight` (3·features, features) and `in_proj_bias`, of queries,
/// keys and values in this order, and the module `out_proj`, with the names and first weights of
/// torch.nn.MultiheadAttention.
class SelfAttention final : public ModuleOf<Tensor(const Tensor& x, const Tensor& key_mask)> {
 public:
  using Options = SelfAttentionOptions;
  SelfAttention(ModuleBase& parent, const std::string& name, SelfAttentionOptions options);
  Tensor forward(const Tensor& x, const Tensor& key_mask) override;
  using ModuleOf::operator();
  Tensor operator()(const Tensor& x) { return (*this)(x, Tensor()); }  ///< all positions may be seen

  Tensor in_proj_weight, in_proj_bias;

 private:
  SelfAttentionOptions options_;
  Linear out_proj_;
};

struct CrossAttentionOptions {
  std::int64_t features = 0;
  int heads = 1;
  double dropout = 0;                        ///< of the attention's weights, while training
  Initializer out_init = default_uniform();  ///< of `out_proj`'s matrix
};
/// (N,T,features) and what it attends to, (N,S,features) -> (N,T,features): queries of the one, keys and
/// values of the other. Modules `q`, `k`, `v`, and `out_proj`, with the first weights of
/// torch.nn.MultiheadAttention, which has the first three in one parameter.
class CrossAttention final : public ModuleOf<Tensor(const Tensor& x, const Tensor& memory)> {
 public:
  using Options = CrossAttentionOptions;
  CrossAttention(ModuleBase& parent, const std::string& name, CrossAttentionOptions options);
  Tensor forward(const Tensor& x, const Tensor& memory) override;

 private:
  CrossAttentionOptions options_;
  Linear q_, k_, v_, out_proj_;
};

}  // namespace tandem::nn
