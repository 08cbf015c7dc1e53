#include <tandem/plan/gradient_rules.h>

#include <cmath>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/over_models.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem::engine {
namespace {

class Rules {
 public:
  Rules(TrainingGraph& training, int models) : training_(training), trace_(training.graph), models_(models) {}

  void clip_value(double most) {
    each([&](const Tensor& g) { return minimum(maximum(g, like(g, -most)), like(g, most)); });
  }

  void clip_norm(double most) {
    const Tensor norm = sqrt(sum_over_all([&](const Tensor& g) { return of_model(g * g, sum); }));
    const Tensor factor = minimum(like(norm, most) / (norm + 1e-6), like(norm, 1));
    each([&](const Tensor& g) { return g * over_models(factor, g.type().rank()); });
  }

  // 0·x is 0 if x is finite, else NaN. The extremes suffice: an infinite or NaN element is always an extreme.
  ValueId all_finite() {
    const Tensor all = sum_over_all(
        [&](const Tensor& g) { return scale(of_model(g, max), 0) + scale(of_model(g, min), 0); });
    return trace_.value(equal(all, like(all, 0)));
  }

 private:
  void at_stage_of(const State& s) { trace_.set_tag(tag_of(Phase::update, "gradients", s.stage, s.device)); }

  void each(const std::function<Tensor(const Tensor&)>& f) {
    for (auto& [state, value] : training_.grads) {
      at_stage_of(training_.graph.state(state));
      value = trace_.value(f(trace_.tensor(value)));
    }
  }

  // Sums f per model: over each stage's gradients in order, then over the stages, on stage 0.
  Tensor sum_over_all(const std::function<Tensor(const Tensor&)>& f) {
    std::map<int, Tensor> of_stage;
    const State* first = nullptr;  // a state of the first stage that has gradients
    for (const auto& [state, value] : training_.grads) {
      const State& s = training_.graph.state(state);
      if (!first || s.stage < first->stage) first = &s;
      at_stage_of(s);
      const Tensor mine = f(trace_.tensor(value));
      Tensor& total = of_stage[s.stage];
      total = total ? total + mine : mine;
    }
    at_stage_of(*first);
    Tensor all;
    for (const auto& [stage, total] : of_stage) all = all ? all + total : total;
    return all;
  }

  // Reduces the elements of each model.
  Tensor of_model(const Tensor& g, Tensor (*reduction)(const Tensor&, Axes, bool)) const {
    std::vector<int> axes;
    for (int axis = models_ > 1 ? 1 : 0; axis < g.type().rank(); ++axis) axes.push_back(axis);
    return axes.empty() ? g : reduction(g, axes, false);
  }

  static Tensor like(const Tensor& t, double value) { return Tensor::full({t.dtype(), {}}, value); }

  TrainingGraph& training_;
  Trace trace_;
  const int models_;
};

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

}  // namespace

TrainingGraph apply_gradient_rules(TrainingGraph training, const GradientRules& rules, int models,
                                   const PipelineSchedule& schedule) {
  if (!rules.any()) return training;
  if (!schedule.updates_together() && (rules.clip_norm || rules.skips()))
    throw Error(
        fmt::format("{} looks at the gradients of all stages, which update at different times under this "
                    "schedule: use one that flushes (gpipe, 1f1b), or clip by value",
                    rules.clip_norm    ? "clipping by norm"
                    : rules.loss_scale ? "loss scaling"
                                       : "skipping batches that are not finite"));
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
    if (rules.clip_value) apply.clip_value(*rules.clip_value);
    if (rules.clip_norm) apply.clip_norm(*rules.clip_norm);
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
