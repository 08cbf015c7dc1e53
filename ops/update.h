#pragma once
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem {

struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

}  // namespace tandem

namespace tandem::engine {

// Weights, gradients and statistics of an update are f32 or f64, and an Error refuses other dtypes: an update
// is mostly smaller than what bf16 resolves of its weight. Mixed precision keeps them in f32
// (plan/mixed_precision.h).
//
// A `guarded` update has one more input, the last: bool, a scalar or one a model. Where it is false there is
// no update: the outputs are what the weights and statistics were.

/// One step of SGD in one pass over memory, as PyTorch defines it: g' = g + weight_decay·w,
/// v' = momentum·v + g', w' = w − lr·(nesterov ? g' + momentum·v' : v').
/// (w, v, g, lr) -> (w', v'); without momentum (w, g, lr) -> (w'), where v' = g'.
/// lr is a scalar, or one a model: [models] with w [models, …].
class SgdUpdateOp final : public Op {
 public:
  /// Throws Error on Nesterov without momentum.
  explicit SgdUpdateOp(SgdOptions options, bool guarded = false);
  std::string_view name() const override { return "sgd_update"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;
  bool has_momentum() const { return options.momentum != 0; }

  const SgdOptions options;
  const bool guarded;
};

}  // namespace tandem::engine

namespace tandem {

struct AdamOptions {
  double beta1 = 0.9;    ///< of the mean of gradients
  double beta2 = 0.999;  ///< of the mean of their squares
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  ///< AdamW: decay shrinks the weights, and is no part of the gradient
};

}  // namespace tandem

namespace tandem::engine {

/// One step of Adam in one pass over memory, as PyTorch defines it, t' = t + 1 being the number of this step:
/// g' = g + weight_decay·w (or, decoupled, w shrinks by 1 − lr·weight_decay first), m' = beta1·m +
/// (1−beta1)·g', v' = beta2·v + (1−beta2)·g'², w' = w − lr/(1−beta1^t')·m' / (√(v'/(1−beta2^t')) + epsilon).
/// (w, m, v, g, t, lr) -> (w', m', v', t'). t and lr are scalars, or one a model: [models] with w [models,
/// …]. (Kingma & Ba 2015; Loshchilov & Hutter 2019.)
class AdamUpdateOp final : public Op {
 public:
  /// Throws Error where a beta is not in [0, 1).
  explicit AdamUpdateOp(AdamOptions options, bool guarded = false);
  std::string_view name() const override { return "adam_update"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;

  const AdamOptions options;
  const bool guarded;
};

/// Predicted weights w − c·v (SpecTrain). (w, v, c) -> (ŵ); c is a scalar, or one a model.
class PredictOp final : public Op {
 public:
  std::string_view name() const override { return "predict"; }
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;
};

}  // namespace tandem::engine

namespace tandem {

/// {w', v'}. `w`, `v` and `g` are f32 or f64 of one type; `lr` is f32 or f64; `update_if`, where it is given,
/// bool. Throws Error with momentum 0.
Tensors sgd_update(const Tensor& w, const Tensor& v, const Tensor& g, const Tensor& lr,
                   const SgdOptions& options, const Tensor& update_if = {});
/// {w'}, for momentum 0.
Tensors sgd_update(const Tensor& w, const Tensor& g, const Tensor& lr, const SgdOptions& options = {},
                   const Tensor& update_if = {});

/// {w', m', v', t'}. `w`, `m`, `v` and `g` are f32 or f64 of one type; `t` is f32; `lr` is f32 or f64.
Tensors adam_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g, const Tensor& t,
                    const Tensor& lr, const AdamOptions& options = {}, const Tensor& update_if = {});

}  // namespace tandem

namespace tandem::engine {

/// w − c·v. `w` and `v` are f32 or f64 of one type; `c` is f32 or f64.
Tensor predict(const Tensor& w, const Tensor& v, const Tensor& c);

}  // namespace tandem::engine
