#include <tandem/nn/models/snn.h>

#include <tandem/ops/activation.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

LinearOptions layer(std::int64_t in, std::int64_t out, const Shape& image = {}) {
  return {.in = in, .out = out, .init = lecun_normal(), .image = image};
}

}  // namespace

Snn::Hidden::Hidden(ModuleBase& parent, const SnnOptions& o) : Module(parent, "hidden") {
  for (int i = 0; i < o.layers; ++i)
    layers_.push_back(std::make_unique<Linear>(
        *this, std::to_string(i), i == 0 ? layer(o.in, o.width, o.image) : layer(o.width, o.width)));
}

Tensor Snn::Hidden::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& linear : layers_) h = selu((*linear)(h));
  return h;
}

Snn::Snn(const SnnOptions& o)
    : hidden_(*this, o),
      head_(*this, "head", o.layers > 0 ? layer(o.width, o.classes) : layer(o.in, o.classes, o.image)) {}

Tensor Snn::forward(const Tensor& x) { return head_(hidden_(flatten(x))); }

}  // namespace tandem::nn
