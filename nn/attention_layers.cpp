#include <tandem/nn/attention_layers.h>

#include <fmt/format.h>

#include <tandem/nn/drawn_parameter.h>
#include <tandem/ops/matmul.h>

namespace tandem::nn {
namespace {

// A third of a parameter (3·features, features), with the variance of the whole.
LinearOptions projection(std::int64_t features) {
  const auto init = [features](const TensorType& type, Fans, const std::string& path, std::uint64_t seed) {
    return xavier_uniform()(type, {features, 3 * features}, path, seed);
  };
  return {.in = features, .out = features, .init = init};
}

}  // namespace

void require_heads(const std::string& network, int heads, std::int64_t width) {
  if (heads < 1 || width % heads != 0)
    throw Error(fmt::format("{}'s {} heads do not divide its width of {}", network, heads, width));
}

AttentionOptions with_dropout(AttentionOptions options, double dropout) {
  options.dropout = dropout;
  if (dropout > 0) options.seed = current_seed();
  return options;
}

SelfAttention::SelfAttention(ModuleBase& parent, const std::string& name, SelfAttentionOptions o)
    : Module(parent, name),
      in_proj_weight(add_parameter(drawn_parameter("in_proj_weight", {3 * o.features, o.features},
                                                   {o.features, 3 * o.features}, xavier_uniform()))),
      in_proj_bias(add_parameter(drawn_parameter("in_proj_bias", {3 * o.features}, {}, constant(0)))),
      options_(o),
      out_proj_(*this, "out_proj",
                {.in = o.features, .out = o.features, .init = o.out_init, .bias_init = constant(0)}) {}

Tensor SelfAttention::forward(const Tensor& x, const Tensor& key_mask) {
  return out_proj_(
      attention(linear(x, in_proj_weight, in_proj_bias),
                with_dropout({.heads = options_.heads, .causal = options_.causal, .key_mask = key_mask},
                             training() ? options_.dropout : 0)));
}

CrossAttention::CrossAttention(ModuleBase& parent, const std::string& name, CrossAttentionOptions o)
    : Module(parent, name),
      options_(o),
      q_(*this, "q", projection(o.features)),
      k_(*this, "k", projection(o.features)),
      v_(*this, "v", projection(o.features)),
      out_proj_(*this, "out_proj",
                {.in = o.features, .out = o.features, .init = o.out_init, .bias_init = constant(0)}) {}

Tensor CrossAttention::forward(const Tensor& x, const Tensor& memory) {
  return out_proj_(attention(q_(x), k_(memory), v_(memory),
                             with_dropout({.heads = options_.heads}, training() ? options_.dropout : 0)));
}

}  // namespace tandem::nn
