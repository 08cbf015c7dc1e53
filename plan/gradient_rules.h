#pragma once
#include <optional>
#include <string_view>

#include <tandem/autograd/training_graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/plan/loss_scale.h>

namespace tandem {

/// What is done with gradients before the optimizer takes them. Each model has its own norm, and is skipped
/// alone.
struct GradientRules {
  std::optional<double> clip_value{};  ///< elements are kept in ±clip_value
  std::optional<double>
      clip_norm{};               ///< all gradients together are scaled to this L2 norm where theirs is larger
  bool skip_non_finite = false;  ///< a batch with a gradient that is NaN or infinite changes no state
  std::optional<LossScale> loss_scale{};  ///< skips such batches too
  bool any() const { return clip_value || clip_norm || skips(); }
  bool skips() const { return skip_non_finite || loss_scale; }
};

/// The result that says whether a batch's update was made: b8, one a model.
inline constexpr std::string_view kUpdated = "updated";

}  // namespace tandem

namespace tandem::engine {

/// Rewrites the gradients: unscaled first, then in the order above (the norm is that of clipped elements).
/// Says in `update_if` which updates are skipped, which becomes the result kUpdated; state that the model
/// assigns itself (running statistics) is skipped with them. What is summed over stages goes to stage 0 and
/// back, so all stages must update in the same unit: `flush`, else throws Error. Norms as PyTorch's
/// clip_grad_norm_: g · min(1, clip_norm / (norm + 1e-6)).
TrainingGraph apply_gradient_rules(TrainingGraph training, const GradientRules& rules, int models,
                                   bool flush);

/// `after` for models that are updated, `before` for others. `update_if` is a bool, or one a model.
Tensor if_updated(const Tensor& update_if, const Tensor& after, const Tensor& before);

/// Throws Error where a number makes no sense.
void check(const GradientRules& rules);

}  // namespace tandem::engine
