#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <tandem/autograd/training_graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/pipeline/pipeline_schedule.h>
#include <tandem/plan/loss_scale.h>
#include <tandem/plan/optimizer.h>

namespace tandem {

/// Which gradients a norm is of: all of a model, or those of each pipeline stage by itself. Stages that
/// update at different times have no norm in common.
enum class ClipScope : std::uint8_t { model, stage };
/// Returns the scope called "model" or "stage". Throws Error listing the names if there is none.
ClipScope clip_scope(std::string_view name);

/// Changes to the gradients before the optimizer uses them. Each model has its own norm, and is skipped
/// independently of the others.
struct GradientRules {
  std::optional<double> clip_value{};  ///< clips every element to ±clip_value
  std::optional<double> clip_norm{};   ///< scales all gradients together to this L2 norm if theirs is larger
  ClipScope clip_scope = ClipScope::model;  ///< whose gradients are scaled together
  bool skip_non_finite = false;  ///< a batch with a gradient that is NaN or infinite changes no state
  std::optional<LossScale> loss_scale{};  ///< skips such batches too
  bool skips() const { return skip_non_finite || loss_scale; }
};

}  // namespace tandem

namespace tandem::engine {

/// Rewrites the gradients: undoes the loss scale, then clips in the order above (the norm is that of clipped
/// elements). `update_if` says which models update, and becomes the result kUpdatedResult; a skipped model
/// also keeps the state that it assigns itself (running statistics). Sums over stages go to stage 0 and back,
/// so all stages must update together, else skipping, and clipping by the norm of the model, throw Error. So
/// does skipping if the model assigns state and batches overlap: forward would read what no update has
/// decided yet. Clips norms as PyTorch's clip_grad_norm_ does: g · min(1, clip_norm / (norm + 1e-6)).
/// `each` has the limits of each model, instead of those of `rules`, or is empty.
TrainingGraph apply_gradient_rules(TrainingGraph training, const GradientRules& rules,
                                   std::span<const ModelOptions> each, int models,
                                   const PipelineSchedule& schedule);

/// Returns `after` for models that update, else `before`. `update_if` is one bool, or one per model.
Tensor if_updated(const Tensor& update_if, const Tensor& after, const Tensor& before);

/// Throws Error if a number is out of range.
void check(const GradientRules& rules);

}  // namespace tandem::engine
