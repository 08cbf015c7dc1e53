#include <tandem/nn/models/convnet.h>

#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>

namespace tandem::nn {

Tensor ConvBlock::forward(const Tensor& x) { return max_pool2d(relu(norm_(conv_(x))), Pool2dOptions(2)); }

ConvNet::ConvNet(ConvNetOptions o) {
  std::int64_t in = o.channels;
  for (std::size_t i = 0; i < o.widths.size(); ++i) {
    blocks_.push_back(std::make_unique<ConvBlock>(*this, "block" + std::to_string(i), in, o.widths[i]));
    in = o.widths[i];
  }
  head_ = std::make_unique<Linear>(*this, "head", LinearOptions{in, o.classes});
}

Tensor ConvNet::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& block : blocks_) h = (*block)(h);
  return (*head_)(mean(h, {1, 2}));
}

}  // namespace tandem::nn
