#pragma once
#include <cstdint>
#include <string_view>

#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem {

/// How SGD with momentum γ moves the weights w by the gradient g', with the learning rate lr:
/// - momentum: v' = γv + g', w' = w − lr·v', as PyTorch and TensorFlow define it;
/// - ema: v' = γv + (1 − γ)g', w' = w − lr·v'. It equals `momentum` at lr/(1 − γ);
/// - raw_ema: v' = γv + (1 − γ)g', w' = w − lr·g'. The average v' serves for predictions alone (Chen, Yang,
///   and Cheng, 2018, Eqs. 1 and 2).
enum class SgdRule : std::uint8_t { momentum, ema, raw_ema };
/// Returns the rule called "momentum", "ema" or "raw+ema". Throws Error listing the names if there is none.
SgdRule sgd_rule(std::string_view name);

struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  SgdRule rule = SgdRule::momentum;
};

struct AdamOptions {
  double beta1 = 0.9;    ///< decay rate of the mean of gradients
  double beta2 = 0.999;  ///< decay rate of the mean of squared gradients
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  ///< AdamW: weight decay shrinks the weights instead of adding to the gradient
};

/// Returns {w', v'}. `w`, `v` and `g` have one type, f32 or f64; `lr` is f32 or f64; `update_if` is bool or
/// undefined. Throws Error if momentum is 0.
Tensors sgd_update(const Tensor& w, const Tensor& v, const Tensor& g, const Tensor& lr,
                   const SgdOptions& options, const Tensor& update_if = {});
/// Returns {w'}. Throws Error unless momentum is 0.
Tensors sgd_update(const Tensor& w, const Tensor& g, const Tensor& lr, const SgdOptions& options = {},
                   const Tensor& update_if = {});

/// Returns {w', m', v', t'}. `w`, `m`, `v` and `g` have one type, f32 or f64; `t` and `lr` are f32 or f64.
Tensors adam_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g, const Tensor& t,
                    const Tensor& lr, const AdamOptions& options = {}, const Tensor& update_if = {});

/// Returns w − c·v: the weights after updates of SGD whose learning rates have the sum c, if the momentum v
/// stays as it is. `w` and `v` have one type, f32 or f64; `c` is f32 or f64. (Chen, Yang, and Cheng, 2018,
/// Eq. 4.)
Tensor predict(const Tensor& w, const Tensor& v, const Tensor& c);
/// The same for Adam, along m̂ / (√v̂ + epsilon) with the bias correction of step t; if decoupled, the weights
/// shrink by c·weight_decay too. Before the first update (t = 0) Adam has no direction.
Tensor adam_predict(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& t, const Tensor& c,
                    const AdamOptions& options = {});

}  // namespace tandem

namespace tandem::engine {

// Weights, gradients and statistics of an update are f32 or f64; other dtypes throw Error, because most
// updates are smaller than the resolution of a bf16 weight. Mixed precision keeps them in f32
// (plan/mixed_precision.h).
//
// A `guarded` update has an additional last input: bool, a scalar or one per model. If it is false, the op
// returns the weights and statistics unchanged.

/// One step of SGD in one pass over memory, as PyTorch defines it: g' = g + weight_decay·w,
/// v' = momentum·v + g', w' = w − lr·(nesterov ? g' + momentum·v' : v'), or by another SgdRule.
/// (w, v, g, lr) -> (w', v'); without momentum (w, g, lr) -> (w'), with v' = g'. One that `keeps_velocity`
/// takes and returns v even so, for a model that trains beside others with momentum. lr is a scalar or one
/// value per model: [models] with w [models, …].
class SgdUpdateOp final : public Op {
 public:
  /// Throws Error if `nesterov` is set and momentum is 0, or the rule is another than momentum.
  explicit SgdUpdateOp(SgdOptions options, bool guarded = false, bool keeps_velocity = false);
  std::string_view name() const override { return "sgd_update"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;
  bool has_velocity() const { return options.momentum != 0 || keeps_velocity; }

  const SgdOptions options;
  const bool guarded, keeps_velocity;
};

/// One step of Adam in one pass over memory, as PyTorch defines it; t' = t + 1 is the number of this step.
/// g' = g + weight_decay·w (if decoupled: g' = g, and w is first multiplied by 1 − lr·weight_decay), m' =
/// beta1·m + (1−beta1)·g', v' = beta2·v + (1−beta2)·g'², w' = w − lr/(1−beta1^t')·m' / (√(v'/(1−beta2^t')) +
/// epsilon). (w, m, v, g, t, lr) -> (w', m', v', t'). t and lr are scalars or one value per model: [models]
/// with w [models, …]. (Kingma & Ba 2015; Loshchilov & Hutter 2019.)
class AdamUpdateOp final : public Op {
 public:
  /// Throws Error if a beta is not in [0, 1).
  explicit AdamUpdateOp(AdamOptions options, bool guarded = false);
  std::string_view name() const override { return "adam_update"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;

  const AdamOptions options;
  const bool guarded;
};

/// Predicted weights w − c·v (SpecTrain). (w, v, c) -> (ŵ); c is a scalar or one value per model.
class PredictOp final : public Op {
 public:
  std::string_view name() const override { return "predict"; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;
};

}  // namespace tandem::engine
