#pragma once
#include <tandem/nn/module.h>

namespace tandem::nn {

struct LstmSizes {
  std::int64_t in = 0, cells = 0;
  std::int64_t projected = 0;  ///< features of the projected outputs; 0: none are projected
  bool bias = true;
  bool reverse = false;  ///< runs from the last step to the first
};
/// (N,T,in) and optional lengths i32 (N), 0 … T, behind which outputs are 0 -> (N,T,P), P = `projected` or
/// `cells`: one layer and direction of torch.nn.LSTM (see `lstm`). Parameters `weight_ih` (4·cells, in),
/// `weight_hh` (4·cells, P), `bias_ih` and `bias_hh` (4·cells), `weight_hr` (P, cells), with its names less
/// the layer's number, and its first weights, uniform in ±1/√cells.
class Lstm final : public ModuleOf<Tensor(const Tensor& x, const Tensor& lengths)> {
 public:
  using Options = LstmSizes;
  Lstm(ModuleBase& parent, const std::string& name, LstmSizes sizes);
  Tensor forward(const Tensor& x, const Tensor& lengths) override;
  using ModuleOf::operator();
  Tensor operator()(const Tensor& x) { return (*this)(x, Tensor()); }  ///< all rows have T steps

  Tensor weight_ih, weight_hh, bias_ih, bias_hh, weight_hr;

 private:
  const bool reverse_;
};

struct ResidualLstmSizes {
  std::int64_t features = 0;  ///< of the inputs and of the outputs
  std::int64_t cells = 0;
  bool reverse = false;  ///< runs from the last step to the first
};
/// (N,T,features) and optional lengths i32 (N), 0 … T, behind which outputs are 0 -> (N,T,features): one
/// layer of Residual LSTM (see `residual_lstm`). Parameters `weight_ih` and `weight_hh` (3·cells + features,
/// features), `bias`, `peepholes` (2, cells), `weight_co` and `weight_hr` (features, cells), which start
/// uniform in ±1/√cells.
class ResidualLstm final : public ModuleOf<Tensor(const Tensor& x, const Tensor& lengths)> {
 public:
  using Options = ResidualLstmSizes;
  ResidualLstm(ModuleBase& parent, const std::string& name, ResidualLstmSizes sizes);
  Tensor forward(const Tensor& x, const Tensor& lengths) override;
  using ModuleOf::operator();
  Tensor operator()(const Tensor& x) { return (*this)(x, Tensor()); }  ///< all rows have T steps

  Tensor weight_ih, weight_hh, bias, peepholes, weight_co, weight_hr;

 private:
  const bool reverse_;
};

}  // namespace tandem::nn
