#pragma once
#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/recurrent_layers.h>

namespace tandem::nn {

struct ResidualLstmNetOptions {
  std::int64_t words = 20'000, classes = 2;
  std::int64_t width = 512;  ///< features of a word, and of a layer's outputs
  std::int64_t cells = 1024;
  int layers = 8;
};

/// ids i32 (N,T) -> (N, classes): layers of Residual LSTM (Kim, El-Khamy & Lee, 2017) as a classifier of
/// texts, as DualPipe's paper trains it (Chen et al. 2018, §4.1). The mean of the last layer's outputs is
/// classified. Modules: embedding, layers.0, layers.1, …, head.
class ResidualLstmNet final : public Module {
 public:
  explicit ResidualLstmNet(ResidualLstmNetOptions options = {});
  Tensor forward(const Tensor& ids) override;

 private:
  Embedding embedding_;
  ModuleList<ResidualLstm> layers_;
  Linear head_;
};

}  // namespace tandem::nn
