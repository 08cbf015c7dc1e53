#pragma once
#include <tandem/core/op.h>
#include <tandem/core/tensor.h>

namespace tandem {

struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// One step of SGD in one pass over memory, as PyTorch defines it: g' = g + weight_decay·w,
/// v' = momentum·v + g', w' = w − lr·(nesterov ? g' + momentum·v' : v').
/// (w, v, g, lr) -> (w', v'); without momentum (w, g, lr) -> (w'), where v' = g'.
/// lr is a scalar, or one a model: [models] with w [models, …].
class SgdUpdate final : public Op {
 public:
  /// Throws Error on Nesterov without momentum.
  explicit SgdUpdate(SgdOptions options);
  std::string_view name() const override { return "sgd_update"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;
  bool has_momentum() const { return options.momentum != 0; }

  const SgdOptions options;
};

/// Predicted weights w − c·v (SpecTrain). (w, v, c) -> (ŵ); c is a scalar, or one a model.
class Predict final : public Op {
 public:
  std::string_view name() const override { return "predict"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors batch(const BatchArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;
};

/// {w', v'}. `w`, `v` and `g` are f32 or f64 of one type; `lr` is f32 or f64. Throws Error with momentum 0.
Tensors sgd_update(const Tensor& w, const Tensor& v, const Tensor& g, const Tensor& lr,
                   const SgdOptions& options);
/// {w'}, for momentum 0.
Tensors sgd_update(const Tensor& w, const Tensor& g, const Tensor& lr, const SgdOptions& options = {});

/// w − c·v. `w` and `v` are f32 or f64 of one type; `c` is f32 or f64.
Tensor predict(const Tensor& w, const Tensor& v, const Tensor& c);

}  // namespace tandem
