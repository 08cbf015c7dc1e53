#include <tandem/plan/gradient_rules.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/over_models.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem {

ClipScope clip_scope(std::string_view name) {
  constexpr std::array<engine::Named<ClipScope>, 2> scopes{
      {{"model", ClipScope::model}, {"stage", ClipScope::stage}}};
  return engine::row_named(name, scopes, "scope of clipping").value;
}

}  // namespace tandem

namespace tandem::engine {
namespace {

class Rules {
 public:
  Rules(TrainingGraph& training, int models) : training_(training), trace_(training.graph), models_(models) {}

  // One limit for all models, or one per model; infinity: none.
  using Limits = std::vector<double>;

  void clip_value(const Limits& most) {
    each([&](const Tensor& g, int) {
      const auto limit = [&](double sign) {
        Limits signed_ones = most;
        for (double& x : signed_ones) x *= sign;
        return over_models(of_models(g, signed_ones), g.type().rank());
      };
      return minimum(maximum(g, limit(-1)), limit(1));
    });
  }

  void clip_norm(const Limits& most, ClipScope scope) {
    const auto factor = [&](const Tensor& squares) {
      const Tensor norm = sqrt(squares);
      return minimum(of_models(norm, most) / (norm + 1e-6), like(norm, 1));
    };
    auto by = sums_of_stages([&](const Tensor& g) { return of_model(g * g, sum); });
    if (scope == ClipScope::model) {
      const Tensor of_all = factor(sum_over(by));
      for (auto& [stage, total] : by) total = of_all;
    } else {
      for (auto& [stage, total] : by) {
        trace_.set_tag(tags_.at(stage));
        total = factor(total);
      }
    }
    each([&](const Tensor& g, int stage) { return g * over_models(by.at(stage), g.type().rank()); });
  }

  // 0·x is 0 if x is finite, else NaN. The extremes suffice: an infinite or NaN element is always an extreme.
  ValueId all_finite() {
    const Tensor all = sum_over(sums_of_stages(
        [&](const Tensor& g) { return scale(of_model(g, max), 0) + scale(of_model(g, min), 0); }));
    return trace_.value(equal(all, like(all, 0)));
  }

 private:
  int at_stage_of(StateId state) {
    const State& s = training_.graph.state(state);
    trace_.set_tag(tags_[s.stage] = tag_of(Phase::update, "gradients", s.stage, s.device));
    return s.stage;
  }

  // f takes a gradient and its stage.
  void each(const std::function<Tensor(const Tensor&, int)>& f) {
    for (auto& [state, value] : training_.grads) {
      const int stage = at_stage_of(state);
      value = trace_.value(f(trace_.tensor(value), stage));
    }
  }

  // Sums f per model, over each stage's gradients in order.
  std::map<int, Tensor> sums_of_stages(const std::function<Tensor(const Tensor&)>& f) {
    std::map<int, Tensor> sums;
    for (const auto& [state, value] : training_.grads) {
      const int stage = at_stage_of(state);
      const Tensor mine = f(trace_.tensor(value));
      Tensor& total = sums[stage];
      total = total ? total + mine : mine;
    }
    return sums;
  }

  // On the first stage.
  Tensor sum_over(const std::map<int, Tensor>& stages) {
    trace_.set_tag(tags_.at(stages.begin()->first));
    Tensor all;
    for (const auto& [stage, total] : stages) all = all ? all + total : total;
    return all;
  }

  Tensor of_model(const Tensor& g, Tensor (*reduction)(const Tensor&, Axes, bool)) const {
    return of_each_model(g, models_, reduction);
  }

  static Tensor of_models(const Tensor& t, const Limits& limits) {
    if (limits.size() == 1) return like(t, limits[0]);
    return Tensor::from(limits, {std::ssize(limits)}, t.dtype());
  }
  static Tensor like(const Tensor& t, double value) { return Tensor::full({t.dtype(), {}}, value); }

  TrainingGraph& training_;
  Trace trace_;
  const int models_;
  std::map<int, Tag> tags_;  // of the stages that have gradients
};

// The limits of a rule: of all models, or of each. Empty: no model has one.
std::vector<double> limits_of(const std::optional<double>& all, std::span<const ModelOptions> each,
                              std::optional<double> ModelOptions::*own) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> limits;
  for (const ModelOptions& model : each) limits.push_back((model.*own).value_or(kNone));
  if (each.empty() && all) limits.push_back(*all);
  const bool differ = std::ranges::any_of(limits, [&](double limit) { return limit != limits[0]; });
  if (limits.empty() || differ) return limits;
  return limits[0] == kNone ? std::vector<double>{} : std::vector{limits[0]};
}

// The graph without its assigns (to untrained state), which `assigns` keeps for later. Value ids stay.
Graph without_assigns(const Graph& g, std::vector<Node>& assigns) {
  GraphRewrite rewrite(g);
  for (const Node& n : g.nodes())
    if (as<AssignOp>(n))
      assigns.push_back(n);
    else
      rewrite.copy(n);
  return rewrite.take();
}

// Whether the last stage, where the loss is scaled, begins the backward of a batch before the last batch's
// update.
bool scales_before_the_update(const PipelineSchedule& schedule) {
  const int last = static_cast<int>(schedule.stages.size()) - 1;
  const auto lag = [&](Phase phase) {
    return std::ranges::find_if(
               schedule.tasks,
               [&](const Task& t) { return t.phase == phase && t.stage == last && t.microbatch == 0; })
        ->lag;
  };
  return lag(Phase::backward) < lag(Phase::update);
}

}  // namespace

TrainingGraph apply_gradient_rules(TrainingGraph training, const GradientRules& rules,
                                   std::span<const ModelOptions> each, int models,
                                   const PipelineSchedule& schedule) {
  const std::vector<double> values = limits_of(rules.clip_value, each, &ModelOptions::clip_value),
                            norms = limits_of(rules.clip_norm, each, &ModelOptions::clip_norm);
  if (!rules.skips() && values.empty() && norms.empty()) return training;
  const bool clips_model = !norms.empty() && rules.clip_scope == ClipScope::model;
  if (!schedule.updates_together() && (clips_model || rules.skips()))
    throw Error(
        fmt::format("{} looks at the gradients of all stages, which update at different times under this "
                    "schedule: use one that flushes (gpipe, 1f1b){}",
                    clips_model        ? "clipping by norm"
                    : rules.loss_scale ? "loss scaling"
                                       : "skipping batches that are not finite",
                    clips_model ? ", or clip by value or by the norm of each stage" : ""));
  if (rules.loss_scale && scales_before_the_update(schedule))
    throw Error(
        "loss scaling looks at the gradients of a batch before the next one's loss is scaled, and this schedule "
        "begins the next one earlier: use one that flushes (gpipe, 1f1b)");
  std::vector<Node> assigns;
  if (rules.skips()) training.graph = without_assigns(training.graph, assigns);
  if (!assigns.empty() && schedule.overlaps_batches())
    throw Error(fmt::format(
        "{} decides whether '{}' keeps its value, and under this schedule forward needs the value before that: "
        "use one that flushes (gpipe, 1f1b)",
        rules.loss_scale ? "loss scaling" : "skipping batches that are not finite",
        training.graph.state(static_cast<const AssignOp&>(*assigns[0].op).state).path));
  if (rules.loss_scale) unscale_gradients(training, *rules.loss_scale);
  {
    Rules apply(training, models);
    if (rules.skips()) training.update_if = apply.all_finite();
    if (!values.empty()) apply.clip_value(values);
    if (!norms.empty()) apply.clip_norm(norms, rules.clip_scope);
  }
  if (rules.skips()) training.results[kUpdatedResult] = training.update_if;
  if (rules.loss_scale) update_loss_scale(training, *rules.loss_scale);
  Trace trace(training.graph);
  for (const Node& n : assigns) {
    const StateId state = static_cast<const AssignOp&>(*n.op).state;
    trace.set_tag(n.tag.in_phase(Phase::update));
    const Tensor before = trace.read(state);
    trace.assign(state, if_updated(trace.tensor(training.update_if), trace.tensor(n.inputs[0]), before));
  }
  return training;
}

Tensor if_updated(const Tensor& update_if, const Tensor& after, const Tensor& before) {
  return where(over_models(update_if, after.type().rank()), after, before);
}

void check(const GradientRules& rules) {
  const auto positive = [](const char* what, const std::optional<double>& x) {
    if (x && (!(*x > 0) || std::isinf(*x)))
      throw Error(fmt::format("{} {}: it must be above 0, and finite", what, *x));
  };
  positive("clipping by value", rules.clip_value);
  positive("clipping by norm", rules.clip_norm);
  if (rules.loss_scale) check(*rules.loss_scale);
}

}  // namespace tandem::engine
