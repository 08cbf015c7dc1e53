#include <tandem/nn/attention_layers.h>

#include <tandem/nn/drawn_parameter.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/matmul.h>

namespace tandem::nn {

SelfAttention::SelfAttention(ModuleBase& parent, const std::string& name, SelfAttentionOptions o)
    : Module(parent, name),
      in_proj_weight(add_parameter(drawn_parameter("in_proj_weight", {3 * o.features, o.features},
                                                   {o.features, 3 * o.features}, xavier_uniform()))),
      in_proj_bias(add_parameter(drawn_parameter("in_proj_bias", {3 * o.features}, {}, constant(0)))),
      options_(o),
      out_proj_(*this, "out_proj", {.in = o.features, .out = o.features, .bias_init = constant(0)}) {}

Tensor SelfAttention::forward(const Tensor& x, const Tensor& key_mask) {
  const double dropout = training() ? options_.dropout : 0;
  return out_proj_(
      attention(linear(x, in_proj_weight, in_proj_bias), {.heads = options_.heads,
                                                          .causal = options_.causal,
                                                          .dropout = dropout,
                                                          .seed = dropout > 0 ? current_seed() : Tensor(),
                                                          .key_mask = key_mask}));
}

}  // namespace tandem::nn
