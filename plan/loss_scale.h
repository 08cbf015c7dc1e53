#pragma once
#include <string_view>

#include <tandem/autograd/training_graph.h>

namespace tandem {

/// Dynamic loss scaling: each model's loss is multiplied by a power of two before backward, so that small
/// gradients keep their bits in a narrow type, and its gradients are divided by it before anything else looks
/// at them. A batch whose gradients are not finite updates nothing and halves the scale (never below 1);
/// after `growth_interval` batches in a row that are, it doubles (never above 2^126). Micikevicius et al.,
/// "Mixed Precision Training", 2018.
struct LossScale {
  double initial = 65536;      ///< a power of two from 1 to 2^126
  int growth_interval = 2000;  ///< batches, from 1 to 2^24: what f32 counts
};

}  // namespace tandem

namespace tandem::engine {

/// The state it keeps, of the optimizer's: the scale (0 before the first batch: `initial`), and the batches
/// in a row whose gradients were finite. Each f32, one a model.
inline constexpr std::string_view kLossScale = "optimizer.loss_scale.scale";
inline constexpr std::string_view kFiniteBatches = "optimizer.loss_scale.finite_batches";

/// The loss to differentiate in place of `loss`. Adds the state, on the loss's stage.
ValueId scale_loss(Graph& forward, ValueId loss, const LossScale& scale);
/// Divides the gradients by the scale. `training.graph` has the state.
void unscale_gradients(TrainingGraph& training, const LossScale& scale);
/// Assigns the scale of the next batch. `training.update_if` says which models' gradients are finite.
void update_loss_scale(TrainingGraph& training, const LossScale& scale);

/// Throws Error where a number makes no sense.
void check(const LossScale& scale);

}  // namespace tandem::engine
