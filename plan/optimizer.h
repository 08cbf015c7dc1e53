#pragma once
#include <optional>
#include <string>
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

}  // namespace tandem

namespace tandem::engine {

/// Appends the optimizer: every gradient updates its parameter and the states that the update keeps:
/// "optimizer.momentum.<path>", or "optimizer.exp_avg.<path>", "optimizer.exp_avg_sq.<path>" and
/// "optimizer.step.<path>". The learning rate is the input "lr": a scalar, or (models,) if there are several
/// models. Throws Error if a group or one of its names has no parameter.
TrainingGraph add_updates(TrainingGraph training, const Optimizer& optimizer,
                          const std::vector<ParameterGroup>& groups, int models);

/// Returns the first group that names the parameter, or null.
const ParameterGroup* group_of(const std::vector<ParameterGroup>& groups, const std::string& path);

/// Returns how many states of its size the optimizer keeps for each parameter.
int states_per_parameter(const Optimizer& optimizer);

/// Throws Error if a number is out of range.
void check(const Optimizer& optimizer);

}  // namespace tandem::engine
