#pragma once
#include <string_view>

#include <tandem/autograd/training_graph.h>

namespace tandem {

/// Dynamic loss scaling: each model's loss is multiplied by a power of two (the scale) before backward, so
/// that small gradients keep their bits in a narrow type. The gradients are divided by the scale before any
/// other use. A batch with gradients that are not finite updates nothing and halves the scale (never below
/// 1); `growth_interval` finite batches in a row double it (never above 2^126). Micikevicius et al., "Mixed
/// Precision Training", 2018.
struct LossScale {
  double initial = 65536;      ///< a power of two from 1 to 2^126
  int growth_interval = 2000;  ///< batches, from 1 to 2^24, which f32 counts exactly
};

}  // namespace tandem

namespace tandem::engine {

/// Paths of the states that loss scaling adds to the optimizer's: the scale (0 before the first batch, which
/// means `initial`), and the number of finite batches in a row. Each is f32, one per model.
inline constexpr std::string_view kLossScale = "optimizer.loss_scale.scale";
inline constexpr std::string_view kFiniteBatches = "optimizer.loss_scale.finite_batches";

/// Returns the loss to differentiate instead of `loss`. Adds the states, on the loss's stage.
ValueId scale_loss(Graph& forward, ValueId loss, const LossScale& scale);
/// Divides the gradients by the scale. `training.graph` must have the states.
void unscale_gradients(TrainingGraph& training, const LossScale& scale);
/// Assigns the scale of the next batch. `training.update_if` says which models' gradients are finite.
void update_loss_scale(TrainingGraph& training, const LossScale& scale);

/// Throws Error if a number is out of range.
void check(const LossScale& scale);

}  // namespace tandem::engine
