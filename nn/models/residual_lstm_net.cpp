#include <tandem/nn/models/residual_lstm_net.h>

#include <tandem/ops/reduce.h>

namespace tandem::nn {

ResidualLstmNet::ResidualLstmNet(ResidualLstmNetOptions o)
    : embedding_(*this, "embedding", {.count = o.words, .features = o.width}),
      layers_(*this, "layers"),
      head_(*this, "head", {.in = o.width, .out = o.classes}) {
  for (int i = 0; i < o.layers; ++i) layers_.add({.features = o.width, .cells = o.cells});
}

Tensor ResidualLstmNet::forward(const Tensor& ids) {
  Tensor x = embedding_(ids);
  for (ResidualLstm& layer : layers_) x = layer(x, Tensor());
  return head_(mean(x, {1}));
}

}  // namespace tandem::nn
