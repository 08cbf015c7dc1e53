#include <tandem/plan/build.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/vmap.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/units.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/schedule/lower.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/dist/backward_program.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/memory/activations.h>
#include <tandem/memory/buffer_assignment.h>
#include <tandem/memory/placement.h>
#include <tandem/memory/recompute.h>
#include <tandem/memory/step_problem.h>
#include <tandem/memory/swap.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/timer.h>
#include <tandem/ops/varied.h>
#include <tandem/pipeline/barriers.h>
#include <tandem/pipeline/stages.h>
#include <tandem/pipeline/timing.h>
#include <tandem/pipeline/transfers.h>
#include <tandem/plan/expand_norms.h>
#include <tandem/plan/fuse_epilogues.h>
#include <tandem/plan/fuse_pointwise.h>
#include <tandem/plan/list_order.h>
#include <tandem/plan/loss_scale.h>
#include <tandem/plan/measure_prediction.h>
#include <tandem/plan/memory_budget.h>
#include <tandem/plan/merge_arrays.h>
#include <tandem/plan/mixed_precision.h>
#include <tandem/plan/network_layers.h>
#include <tandem/plan/optimizer.h>
#include <tandem/plan/pool_first.h>
#include <tandem/plan/predict_weights.h>
#include <tandem/plan/sparse_updates.h>

namespace tandem::engine {
namespace {

TrainingGraph training_step(const Graph& forward, const Strategy& strategy) {
  TrainingGraphOptions options{strategy.models, strategy.replicas, strategy.microbatches};
  if (const auto& scale = strategy.gradients.loss_scale)
    options.scale_loss = [&](Graph& g, ValueId loss) { return scale_loss(g, loss, *scale); };
  return training_graph(forward, options);
}

Graph deliver(TrainingGraph training) {
  Graph& g = training.graph;
  for (const auto& [name, value] : training.results) {
    const Tag tag = g.producer(value).tag.without_channel().named(name);
    g.add(std::make_shared<ResultOp>(name), {value}, tag);
  }
  return std::move(training.graph);
}

// What a computation takes by its operations and bytes, where nothing was measured.
double estimated_seconds(const Instruction& s, const DeviceSpeed& speed, int threads) {
  const Work work = s.op->cost(s.inputs, s.outputs);
  return std::max(work.flops / (speed.flops * threads), work.bytes / speed.bytes) + speed.seconds_per_kernel;
}

Cost contended_cost(const Instruction& all_reduce, double bytes, const Strategy& strategy) {
  const double hop_ms = strategy.link.latency * 1e3;
  return cost_of_all_reduce(bytes, strategy.contention->at(all_reduce.tag.threads),
                            ring_costs(strategy.replicas, hop_ms, {}));
}

Cost cost_of(const Instruction& instruction, const Strategy& strategy) {
  double bytes = 0;
  for (const auto& t : instruction.inputs.empty() ? instruction.outputs : instruction.inputs)
    bytes += static_cast<double>(t.bytes());
  const LaneKind lane = instruction.op->lane();
  if (const auto* timer = as<TimerOp>(instruction)) return {timer->ms / 1e3};
  if (strategy.contention && as<AllReduceOp>(instruction))
    return contended_cost(instruction, bytes, strategy);
  if (as<AllGatherOp>(instruction)) return {all_gather_seconds(strategy.link, bytes, strategy.replicas)};
  if (lane == LaneKind::collective)
    return {all_reduce_seconds(strategy.link, bytes, strategy.replicas, strategy.collective)};
  if (lane == LaneKind::send || lane == LaneKind::receive) return {transfer_seconds(strategy.link, bytes)};
  if (const auto* copy = as<LinkCopyOp>(instruction))  // plans count bytes as they are placed
    return {copy->link.bytes_per_ms > 0 ? static_cast<double>(align_up(instruction.outputs[0].bytes())) /
                                              copy->link.bytes_per_ms / kMsPerSecond
                                        : 0};
  // A simulation takes the costs that it measures (with_costs in core/runtime/profile.h).
  if (strategy.memory_budget == 0 && strategy.memory_plan.empty() && strategy.known_memory_plans.empty())
    return {};
  const auto measured =
      strategy.profile ? strategy.profile->find(instruction, strategy.threads) : std::nullopt;
  return {measured ? *measured : estimated_seconds(instruction, strategy.speed, strategy.threads)};
}

const Graph& graph_of(const Graph& graph) { return graph; }
const Graph& graph_of(const TrainingGraph& training) { return training.graph; }

// The Program that needs less memory, of those of the two list orders.
Program smallest(ListedGraph& step, const std::vector<Task>& tasks, const LowerOptions& options) {
  const Graph& g = step.graph;
  const auto placed = [&](const std::vector<NodeId>& order) {
    return planned(with_copy_waits(lower(g, order, assign_buffers(g, order, step.keep), options)));
  };
  step.order = list_order(g, tasks, /*large_gradients_last=*/true);
  auto at_once = list_order(g, tasks, /*large_gradients_last=*/false);
  Program program = placed(step.order);
  if (at_once == step.order) return program;
  Program other = placed(at_once);
  if (planned_peak(other) >= planned_peak(program)) return program;
  step.order = std::move(at_once);
  return other;
}

Graph recompute_and_swap(Graph graph, const Strategy& strategy) {
  const bool has_lists = !strategy.swap.empty() || !strategy.recompute.empty();
  const bool carries_them_out = has_lists && strategy.memory_plan.empty();  // or else the policy does
  if (!strategy.recompute_cheap && !carries_them_out) return graph;
  const Graph all = with_backward_views(graph);
  Graph g = strategy.recompute_cheap ? insert_recomputes(all, cheap_activations(all)) : all;
  if (!carries_them_out) return g;
  const auto recomputed = select_activations(g, strategy.recompute, Eviction::recompute, &all);
  g = insert_recomputes(std::move(g), recomputed);
  const auto swapped = select_activations(g, strategy.swap, Eviction::swap, &all);
  return insert_swaps(std::move(g), swapped);
}

// Checks a graph after a pass, if the strategy wants it.
template <class G> G verified(G graph, const Strategy& strategy) {
  if (strategy.verify) verify(graph_of(graph));
  return graph;
}

// The forward graph as it is differentiated: for all models, in stages.
Graph in_stages(const Graph& forward, const Strategy& strategy, const PipelineSchedule& schedule) {
  const auto checked = [&](Graph graph) { return verified(std::move(graph), strategy); };
  check(strategy);
  Graph g = checked(remove_detaches(forward));
  if (strategy.pool_first) g = checked(pool_first(g));
  if (strategy.amp) g = checked(mixed_precision(g, *strategy.amp));
  if (strategy.models > 1) g = checked(vmap(g, strategy.models));
  const auto cuts = cuts_of(forward, strategy);
  if (strategy.train && strategy.replicas == 1 && !strategy.fusion_groups.empty())
    throw Error(
        "the plan's fusion_groups have no effect: one replica reduces nothing; give several replicas, or leave "
        "them out");
  return checked(cut_into_stages(std::move(g), cuts, schedule.stages));
}

// The optimizer along whose direction weights are predicted.
const Optimizer& predicted_optimizer(const Strategy& strategy) {
  const auto* first = strategy.each.empty() ? nullptr : &strategy.each[0].optimizer;
  for (const ModelOptions& model : strategy.each) {
    if (model.optimizer.index() != first->index())
      throw Error(
          "weights are predicted by the same rule for all models, and some have SGD and others Adam: train them in "
          "runs of their own, or choose a schedule without predictions (dualpipe)");
    const auto *a = std::get_if<AdamOptions>(first), *b = std::get_if<AdamOptions>(&model.optimizer);
    if (a && (a->beta1 != b->beta1 || a->beta2 != b->beta2 || a->epsilon != b->epsilon ||
              a->weight_decay != b->weight_decay || a->decoupled != b->decoupled))
      throw Error(
          "weights are predicted by the same rule for all models, and these differ in Adam's betas, epsilon or "
          "weight decay: train them in runs of their own, or choose a schedule without predictions (dualpipe)");
    if (const auto* sgd = std::get_if<SgdOptions>(&model.optimizer); sgd && sgd->momentum == 0)
      first = &model.optimizer;
  }
  return first ? *first : strategy.optimizer;
}

// Forward, backward, and updates; without training, forward alone. The models keep a velocity if one of all
// arrays has momentum, because arrays have their states in common.
TrainingGraph with_updates(const Graph& forward, const Strategy& strategy, const PipelineSchedule& schedule,
                           bool keeps_velocity) {
  const auto checked = [&](auto graph) { return verified(std::move(graph), strategy); };
  const Graph g = in_stages(forward, strategy, schedule);
  TrainingGraph training =
      checked(strategy.train ? training_step(g, strategy) : evaluation_graph(g, strategy.replicas));
  training = checked(add_all_reduces(std::move(training), strategy.replicas, strategy.fusion_groups));
  if (!strategy.train) return training;
  training = checked(apply_gradient_rules(std::move(training), strategy.gradients, strategy.each,
                                          strategy.models, schedule));
  return checked(add_updates(std::move(training), {.optimizer = strategy.optimizer,
                                                   .groups = strategy.parameter_groups,
                                                   .models = strategy.models,
                                                   .each = strategy.each,
                                                   .keeps_velocity = keeps_velocity,
                                                   .is_masked = strategy.masks_models}));
}

// The step of one array, which has all models of the strategy.
Graph step_of_array(const Graph& forward, const Strategy& strategy, bool keeps_velocity) {
  const auto checked = [&](auto graph) { return verified(std::move(graph), strategy); };
  TrainingGraph training = with_updates(forward, strategy, schedule_of(strategy), keeps_velocity);
  if (strategy.sparse_updates) training = checked(sparse_updates(std::move(training)));
  return checked(expand_norms(deliver(std::move(training))));
}

// The strategy of an array with these of the models.
Strategy of_array(Strategy strategy, const ModelRange& range) {
  strategy.models = range.count;
  strategy.arrays.clear();
  if (strategy.each.empty()) return strategy;
  const auto first = strategy.each.begin() + range.first;
  strategy.each = {first, first + range.count};
  strategy.optimizer = strategy.each[0].optimizer;  // all models of an array have one of this kind
  return strategy;
}

Graph step_of_arrays(const Graph& forward, const Strategy& strategy) {
  check(strategy);
  const bool keeps_velocity = keep_velocity(strategy.each);
  std::vector<Graph> steps;
  ModelRange range;
  for (const int models : strategy.arrays.empty() ? std::vector{strategy.models} : strategy.arrays) {
    range.count = models;
    steps.push_back(step_of_array(of_models(forward, range), of_array(strategy, range), keeps_velocity));
    range.first += models;
  }
  return steps.size() == 1 ? std::move(steps[0]) : merge_arrays(steps, strategy.arrays);
}

}  // namespace

Graph planned_graph(const Graph& forward, const Strategy& strategy) {
  const PipelineSchedule schedule = schedule_of(strategy);
  const auto checked = [&](auto graph) { return verified(std::move(graph), strategy); };
  Graph g = checked(step_of_arrays(forward, strategy));
  g = checked(apply_timing(g, schedule));
  if (strategy.train) {
    const bool predicts = schedule.predicts_weights() || !strategy.measure_prediction.empty();
    const Optimizer& optimizer = predicts ? predicted_optimizer(strategy) : strategy.optimizer;
    g = checked(
        predict_weights(std::move(g), schedule, optimizer, strategy.parameter_groups, strategy.models));
    g = checked(measure_prediction(std::move(g), strategy.measure_prediction, schedule, optimizer,
                                   strategy.parameter_groups, strategy.models));
  }
  if (schedule.devices() > 1)
    g = checked(insert_transfers(g));  // first: a received value is an activation too
  if (strategy.fuse_pointwise) g = checked(fuse_pointwise(g));
  g = checked(recompute_and_swap(std::move(g), strategy));
  if (strategy.fuse_epilogues) g = checked(fuse_epilogues(g));
  g = checked(copy_shared_operands(g));
  return checked(insert_barriers(std::move(g), schedule));
}

std::vector<TableUpdate> table_updates(const Graph& forward, const Strategy& strategy) {
  std::vector<TableUpdate> all;
  if (!strategy.train) return all;
  ModelRange range;
  for (const int models : strategy.arrays.empty() ? std::vector{strategy.models} : strategy.arrays) {
    range.count = models;
    std::vector<TableUpdate> tables;
    sparse_updates(with_updates(of_models(forward, range), of_array(strategy, range), schedule_of(strategy),
                                keep_velocity(strategy.each)),
                   &tables);
    if (all.empty()) all = tables;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].why_not.empty()) all[i].why_not = tables[i].why_not;
    range.first += models;
  }
  return all;
}

std::vector<std::vector<GradientLayer>> gradient_layers(const Graph& forward, const Strategy& strategy) {
  auto devices =
      gradient_layers(training_step(in_stages(forward, strategy, schedule_of(strategy)), strategy));
  if (strategy.sparse_updates)
    for (const TableUpdate& table : table_updates(forward, strategy))
      if (table.why_not.empty())
        for (auto& layers : devices)
          std::erase_if(layers, [&](const auto& l) { return l.name == table.path; });
  return devices;
}

namespace {

PlannedMemory built(const Graph& forward, const Strategy& strategy) {
  ListedGraph step{planned_graph(forward, strategy), {}};
  const std::vector<Task> tasks = schedule_of(strategy).tasks;
  const LowerOptions options{.devices = strategy.devices(),
                             .replicas = strategy.replicas,
                             .microbatches = strategy.microbatches,
                             .kernels = strategy.kernels,
                             .threads = strategy.threads,
                             .cost = [&](const Instruction& s) { return cost_of(s, strategy); }};
  PlannedMemory made{smallest(step, tasks, options), {}};
  if (plans_memory(strategy, made.program)) {
    step.keep = movable_values(step.graph);
    made = within_budget(step, smallest(step, tasks, options), options, strategy);
  }
  check_budget(made.program, strategy.memory_budget);
  check_host_budget(made.program, strategy.host_budget);
  return made;
}

}  // namespace

Program build(const Graph& forward, const Strategy& strategy) {
  Program program = built(forward, strategy).program;
  if (strategy.verify) verify(program);
  return program;
}

std::vector<DevicePlan> memory_plans(const Graph& forward, const Strategy& strategy) {
  return built(forward, strategy).devices;
}

}  // namespace tandem::engine
