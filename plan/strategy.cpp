#include <tandem/plan/strategy.h>

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/memory/memory_policies.h>

namespace tandem::engine {

Strategy with_schedule(Strategy s, PipelineSchedule schedule) {
  s.stages = static_cast<int>(schedule.stages.size());
  s.microbatches = schedule.microbatches();
  s.own_schedule = std::move(schedule);
  return s;
}

void check(const Strategy& s) {
  const auto in_range = [](const char* what, int n) {
    constexpr int kMost = 10'000;
    if (n < 1 || n > kMost)
      throw Error(
          fmt::format("a strategy of {} {}: there must be one or more, and {} at most", n, what, kMost));
  };
  in_range("models", s.models);
  for (const int models : s.arrays) in_range("models of an array", models);
  if (!s.arrays.empty() && std::accumulate(s.arrays.begin(), s.arrays.end(), 0) != s.models)
    throw Error(fmt::format("the arrays have {} models together, the strategy has {}",
                            std::accumulate(s.arrays.begin(), s.arrays.end(), 0), s.models));
  in_range("compute lanes of arrays", s.array_lanes);
  in_range("replicas", s.replicas);
  in_range("micro-batches", s.microbatches);
  in_range("stages", s.stages);
  in_range("chunks", s.chunks);
  in_range("threads", s.threads);
  for (const FusionGroup& group : s.fusion_groups) {
    in_range("threads for an all-reduce", group.threads);
    require_not_negative("the earliest_ms of a fusion group", group.earliest_ms);
  }
  for (const int updates : s.measure_prediction) in_range("updates to predict", updates);
  require_not_negative("memory budget", static_cast<double>(s.memory_budget));
  require_not_negative("the bytes per ms of a copy link", s.copy_link.bytes_per_ms);
  require_not_negative("host budget", static_cast<double>(s.host_budget));
  if (!s.known_memory_plans.empty() && !(s.memory_plan.empty() && s.swap.empty() && s.recompute.empty()))
    throw Error(
        "a memory plan of an earlier run stands beside a policy, or lists of swaps and recomputes: leave out one");
  if (!s.memory_plan.empty()) memory_policy(s.memory_plan);
  const bool has_lists = !s.swap.empty() || !s.recompute.empty();
  if (s.memory_plan == kListsPolicy && !has_lists)
    throw Error("the memory plan 'lists' needs lists of swaps or recomputes, and there are none");
  if (s.memory_plan == kListsPolicy && !s.swap.empty() && s.copy_link.bytes_per_ms <= 0)
    throw Error(
        "the memory plan 'lists' swaps activations, which needs a copy link: give one, or recompute them");
  if (!s.memory_plan.empty() && s.memory_plan != kListsPolicy && has_lists)
    throw Error(fmt::format(
        "the memory plan '{}' stands beside lists of swaps and recomputes: leave out one of them, or "
        "let the plan 'lists' carry them out",
        s.memory_plan));
  check(s.optimizer);
  if (s.train) check(s.each, s.optimizer, s.arrays);
  if (!s.each.empty() && std::ssize(s.each) != s.models)
    throw Error(fmt::format("the strategy says what each of {} has of its own, and has {}",
                            counted(std::ssize(s.each), "model"), counted(s.models, "model")));
  for (const ModelOptions& model : s.each) {
    GradientRules rules = s.gradients;
    rules.clip_value = model.clip_value;
    rules.clip_norm = model.clip_norm;
    check(rules);
  }
  for (const ParameterGroup& group : s.parameter_groups) {
    require_not_negative("a parameter group's lr_scale", group.lr_scale);
    if (group.weight_decay) require_not_negative("a parameter group's weight_decay", *group.weight_decay);
  }
  check(s.gradients);
  if (!s.train && s.microbatches > 1)
    throw Error(fmt::format("evaluation has no micro-batches, the strategy has {}; see for_evaluation",
                            s.microbatches));
}

namespace {

PipelineSchedule own_schedule_of(const Strategy& s) {
  return s.train ? *s.own_schedule : one_by_one(*s.own_schedule);
}

PipelineSchedule named_schedule_of(const Strategy& s) {
  const PipelineShape shape{.stages = s.stages,
                            .microbatches = s.microbatches,
                            .chunks = s.chunks,
                            .target = s.spectrain_target,
                            .lockstep = s.lockstep};
  return s.train ? make_schedule(s.schedule, shape) : evaluation_schedule(s.schedule, shape);
}

}  // namespace

PipelineSchedule schedule_of(const Strategy& s) {
  if (s.own_schedule && (s.lockstep || s.chunks > 1))
    throw Error(
        "lockstep and chunks have no effect on a schedule of your own: it says itself where barriers are, and "
        "on which devices stages lie");
  PipelineSchedule schedule = s.own_schedule ? own_schedule_of(s) : named_schedule_of(s);
  if (std::ssize(schedule.stages) != s.stages || schedule.microbatches() != s.microbatches)
    throw Error(fmt::format("the schedule is for {} and {}, the strategy has {} and {}",
                            counted(std::ssize(schedule.stages), "stage"),
                            counted(schedule.microbatches(), "micro-batch"), s.stages, s.microbatches));
  if (s.arrays.size() > 1)
    schedule = for_arrays(schedule, static_cast<int>(s.arrays.size()), s.array_order, s.array_lanes);
  check(schedule);
  return schedule;
}

Strategy for_evaluation(Strategy s) {
  s.arrays.clear();
  s.array_lanes = 1;
  if (s.stages > 1 && s.cuts.empty())
    throw Error("evaluation in stages needs the cuts of training; give them in the strategy");
  PipelineSchedule alone = one_by_one(schedule_of(s));
  s = with_schedule(std::move(s), std::move(alone));
  s.lockstep = false;
  s.chunks = 1;
  s.train = false;
  s.fusion_groups.clear();
  s.measure_prediction.clear();
  s.swap.clear();
  s.recompute.clear();
  s.memory_plan.clear();
  s.known_memory_plans.clear();
  return s;
}

Strategy on_one_device(Strategy s) {
  s.replicas = s.stages = s.chunks = 1;
  s.schedule = "plain";
  s.own_schedule.reset();
  s.lockstep = false;
  s.cuts.clear();
  s.fusion_groups.clear();
  s.measure_prediction.clear();
  s.memory_budget = 0;
  s.memory_plan.clear();
  s.known_memory_plans.clear();
  return s;
}

}  // namespace tandem::engine
