#include <tandem/nn/models/mlp.h>

#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {
LinearOptions first(const MlpOptions& o, std::int64_t out) {
  return {.in = o.in, .out = out, .image = o.image};
}
}  // namespace

Mlp::Mlp(const MlpOptions& o) {
  for (int i = 0; i < o.blocks; ++i)
    hidden_.push_back(std::make_unique<Linear>(*this, "hidden" + std::to_string(i),
                                               i ? LinearOptions{o.hidden, o.hidden} : first(o, o.hidden)));
  head_ = std::make_unique<Linear>(*this, "head",
                                   o.blocks ? LinearOptions{o.hidden, o.classes} : first(o, o.classes));
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = flatten(x);
  for (auto& layer : hidden_) h = relu((*layer)(h));
  return (*head_)(h);
}

Tensor ResidualBlock::forward(const Tensor& x) { return relu(add(x, second_(relu(first_(x))))); }

MlpResidual::MlpResidual(const MlpOptions& o) : stem_(*this, "stem", first(o, o.hidden)) {
  for (int i = 0; i < o.blocks; ++i)
    blocks_.push_back(std::make_unique<ResidualBlock>(*this, "block" + std::to_string(i), o.hidden));
  head_ = std::make_unique<Linear>(*this, "head", LinearOptions{o.hidden, o.classes});
}

Tensor MlpResidual::forward(const Tensor& x) {
  Tensor h = relu(stem_(flatten(x)));
  for (auto& block : blocks_) h = (*block)(h);
  return (*head_)(h);
}

}  // namespace tandem::nn
