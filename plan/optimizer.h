#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tandem/autograd/training_graph.h>
#include <tandem/ops/update.h>

namespace tandem {

/// The rule by which gradients update the parameters.
using Optimizer = std::variant<SgdOptions, AdamOptions>;

/// Parameters that are treated differently from the others.
struct ParameterGroup {
  /// Paths; "*" stands for anything: "head.*", "*.bias". A parameter belongs to the first group that names
  /// it.
  std::vector<std::string> parameters;
  double lr_scale = 1;                   ///< multiplies the learning rate
  std::optional<double> weight_decay{};  ///< replaces the optimizer's
};

/// What one of several models that train side by side has of its own. (Its learning rate and its seed are
/// inputs of the Program; its dropout rates and its loss are attributes of the graph: ops/varied.h.)
struct ModelOptions {
  Optimizer optimizer = SgdOptions{};  ///< of one kind in an array; of the first model, of the strategy's
  std::optional<double> clip_value{}, clip_norm{};  ///< as in GradientRules
};

}  // namespace tandem

namespace tandem::engine {

/// Appends the optimizer: every gradient updates its parameter and the states that the update keeps:
/// "optimizer.momentum.<path>", or "optimizer.exp_avg.<path>", "optimizer.exp_avg_sq.<path>" and
/// "optimizer.step.<path>". The learning rate is the input "lr": a scalar, or (models,) if there are several
/// models. With `is_masked`, a model is updated only in batches for which the input "active", a bool per
/// model, is true. Throws Error if a group or one of its names has no parameter.
struct UpdateOptions {
  const Optimizer& optimizer;
  const std::vector<ParameterGroup>& groups;
  int models = 1;
  std::span<const ModelOptions> each{};  ///< per model, instead of `optimizer`; or empty
  bool keeps_velocity = false;           ///< as SgdUpdateOp's
  bool is_masked = false;
};
TrainingGraph add_updates(TrainingGraph training, const UpdateOptions& options);

/// Returns whether SGD of one of the models has momentum, so that all keep a velocity.
bool keep_velocity(std::span<const ModelOptions> models);

/// Returns the first group that names the parameter, or null.
const ParameterGroup* group_of(const std::vector<ParameterGroup>& groups, const std::string& path);

/// Returns whether a run of this optimizer has a state: false if only other optimizers keep it for a
/// parameter.
bool keeps(const Optimizer& optimizer, std::string_view path);
/// Returns how many states of its size the optimizer keeps for each parameter.
int states_per_parameter(const Optimizer& optimizer);

/// Throws Error if a number is out of range.
void check(const Optimizer& optimizer);
/// Throws Error if the models of an array have optimizers of different kinds, since then their states differ,
/// or the first model's is of another kind than `optimizer`. `arrays` are sizes; empty: one array has all
/// models.
void check(std::span<const ModelOptions> models, const Optimizer& optimizer, std::span<const int> arrays);

}  // namespace tandem::engine
