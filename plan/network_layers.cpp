#include <tandem/plan/network_layers.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <tandem/autograd/training_graph.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/varied.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/build.h>

namespace tandem::engine {
namespace {

constexpr double kNextBudget = 0.98;  // at most, of what cuts that do not fit need

double seconds_of(const Graph& g, const Node& n, const DeviceSpeed& speed) {
  const Work work = n.op->cost(g.types(n.inputs), g.types(n.outputs));
  return std::max(work.flops / speed.flops, work.bytes / speed.bytes);
}

bool is_sum(const Node& n) {
  const auto* pointwise = as<PointwiseOp>(n);
  return pointwise && pointwise->expression.back().code == PointwiseCode::add && n.inputs.size() == 2;
}

// Adds up the nodes of a training step whose stages are the layers.
class Layers {
 public:
  Layers(const TrainingGraph& step, std::size_t count, double microbatches, const DeviceSpeed& speed)
      : g_(step.graph), microbatches_(microbatches), layers_(count), shared_(g_.values().size(), false) {
    const Readers readers = g_.readers();
    for (const Node& n : g_.nodes()) mark_made_of_weights(n);
    for (const auto& [state, gradient] : step.grads) mark_parts_of(gradient);
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      const double seconds = is_weights_copy(node) ? 0 : microbatches_ * seconds_of(g_, node, speed);
      if (node.tag.phase == Phase::forward) layer(node.tag.stage).forward += seconds;
      if (node.tag.phase == Phase::backward) layer(node.tag.stage).backward += seconds;
      if ((is_leaf(node) && !as<InputOp>(node)) || view_of(g_, node)) continue;
      for (const ValueId v : node.outputs) add_value(v, readers);
    }
    for (const State& state : g_.states())
      layer(state.stage).weight_bytes += static_cast<double>(state.type.bytes());
    for (const auto& [s, gradient] : step.grads)
      layer(g_.state(s).stage).gradient_bytes += static_cast<double>(g_.state(s).type.bytes());
  }

  std::vector<PipelineLayer> layers() const { return layers_; }

 private:
  PipelineLayer& layer(int stage) { return layers_[static_cast<std::size_t>(stage)]; }

  // The nodes that read a value or a view of it.
  std::vector<const Node*> users_of(ValueId v, const Readers& readers) const {
    std::vector<const Node*> users;
    for (const NodeId r : readers[v]) {
      const Node& user = g_.node(r);
      users.push_back(&user);
      if (view_of(g_, user) == v) {
        const auto more = users_of(user.outputs[0], readers);
        users.insert(users.end(), more.begin(), more.end());
      }
    }
    return users;
  }

  // What is made of weights alone is made once per batch.
  void mark_made_of_weights(const Node& n) {
    const bool of_weights =
        as<ReadOp>(n) ||
        (!n.inputs.empty() && std::ranges::all_of(n.inputs, [&](ValueId v) { return shared_[v]; }));
    for (const ValueId v : n.outputs) shared_[v] = of_weights;
  }
  // Weights that several layers use are copied where these are on several devices, once per batch.
  bool is_weights_copy(const Node& n) const { return as<CopyOp>(n) && shared_[n.inputs[0]]; }
  // Each part of the network sums its gradient of a state over the micro-batches (autograd/separate_uses.h).
  void mark_parts_of(ValueId gradient) {
    shared_[gradient] = true;
    const Node& n = g_.producer(gradient);
    if (!is_sum(n) && !as<CopyOp>(n)) return;
    for (const ValueId v : n.inputs)
      if (g_.producer(v).tag.phase == Phase::backward && g_.type(v) == g_.type(gradient)) mark_parts_of(v);
  }

  void add_value(ValueId v, const Readers& readers) {
    const Tag& made = g_.producer(v).tag;
    const double bytes = (shared_[v] ? 1 : microbatches_) * static_cast<double>(g_.type(v).bytes());
    int first = made.stage, last = made.stage;
    std::set<int> kept;  // where backward reads what forward made
    for (const Node* user : users_of(v, readers)) {
      if (user->tag.phase == made.phase) {
        first = std::min(first, user->tag.stage);
        last = std::max(last, user->tag.stage);
      } else if (made.phase == Phase::forward && user->tag.phase == Phase::backward) {
        kept.insert(user->tag.stage);
      }
    }
    if (made.phase == Phase::forward)
      for (int s = made.stage; s < last; ++s) layer(s).forward_bytes += bytes;
    if (made.phase == Phase::backward)
      for (int s = first; s < made.stage; ++s) layer(s).backward_bytes += bytes;
    keep(layers_, kept, bytes);
  }

  const Graph& g_;
  const double microbatches_;
  std::vector<PipelineLayer> layers_;
  IdVector<ValueId, bool> shared_;  // by all micro-batches
};

// The smallest budget that has room for a partition, as `best_partition` counts.
double least_budget_of(const Partition& partition) {
  double bytes = 0;
  for (const PartitionedStage& s : partition.stages) {
    const auto of_device = std::ranges::count(partition.stages, s.device, &PartitionedStage::device);
    bytes = std::max(bytes, s.memory_bytes * static_cast<double>(of_device));
  }
  return bytes;
}

struct PlannedCuts {
  std::vector<int> cuts;  // first layers of stages
  std::int64_t peak = 0;  // planned, in bytes
  int fullest = 0;        // the device that needs so many
};

PlannedCuts planned(std::vector<int> cuts, const Graph& forward, Strategy strategy,
                    const PartitionProblem& problem) {
  strategy.cuts = names_of(problem, cuts);
  strategy.fusion_groups.clear();  // they may cross these cuts
  strategy.memory_budget = 0;
  strategy.verify = false;
  const Program program = build(forward, strategy);
  PlannedCuts result{std::move(cuts)};
  for (int d = 0; d < program.devices; ++d)
    if (const std::int64_t peak = planned_peak(program, d); peak > result.peak)
      result.peak = peak, result.fullest = d;
  return result;
}

// Cuts with which a stage of the fullest device has a layer less.
std::vector<std::vector<int>> relieving(const PlannedCuts& now, const PartitionProblem& problem) {
  std::vector<int> bounds = now.cuts;  // of stages
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(static_cast<int>(problem.layers.size()));
  std::vector<std::vector<int>> all;
  for (std::size_t k = 0; k + 1 < bounds.size(); ++k) {
    if (problem.schedule.stages[k].device != now.fullest || bounds[k + 1] - bounds[k] < 2) continue;
    if (k > 0) ++all.emplace_back(now.cuts)[k - 1];
    if (k < now.cuts.size()) --all.emplace_back(now.cuts)[k];
  }
  return all;
}

// The problem only estimates the memory, and a plan tells it. So its budget goes down until a plan stays
// within the strategy's; if none does, layers leave the fullest device one by one while that helps.
std::vector<int> cuts_within_budget(const Graph& forward, const Strategy& strategy,
                                    PartitionProblem problem) {
  Partition partition = best_partition(problem);
  PlannedCuts now = planned(partition.cuts(), forward, strategy, problem), best = now;
  const double least = least_memory_budget(problem);
  for (double estimated = least_budget_of(partition); best.peak > strategy.memory_budget && estimated > least;
       estimated = least_budget_of(partition)) {
    const double part = static_cast<double>(strategy.memory_budget) / static_cast<double>(now.peak);
    problem.memory_budget = std::max(least, estimated * std::min(kNextBudget, part));
    partition = best_partition(problem);
    now = planned(partition.cuts(), forward, strategy, problem);
    if (now.peak < best.peak) best = now;
  }
  for (bool helped = true; helped && best.peak > strategy.memory_budget;) {
    helped = false;
    for (std::vector<int>& cuts : relieving(best, problem))
      if (now = planned(std::move(cuts), forward, strategy, problem); now.peak < best.peak)
        best = now, helped = true;
  }
  return best.cuts;
}

}  // namespace

PartitionProblem partition_problem(const Graph& forward, const std::vector<std::string>& cuts,
                                   const Strategy& strategy, const DeviceSpeed& speed) {
  const std::vector<PipelineStage> stages(cuts.size() + 1);  // all on one device
  const Graph one_model = remove_detaches(of_models(forward, {0, 1}));
  const Graph parts = cut_into_stages(one_model, cuts, stages);
  const TrainingGraph step = strategy.train ? training_graph(parts) : evaluation_graph(parts, 1);
  PartitionProblem problem{.layers = Layers(step, stages.size(), strategy.microbatches, speed).layers(),
                           .schedule = schedule_of(strategy),
                           .link = strategy.link,
                           .optimizer_copies = static_cast<double>(states_per_parameter(strategy.optimizer))};
  problem.layers[0].name = "inputs";
  for (std::size_t k = 0; k < cuts.size(); ++k) problem.layers[k + 1].name = cuts[k];
  return problem;
}

std::vector<std::string> best_cuts(const Graph& forward, const Strategy& strategy, PartitionProblem problem) {
  problem.memory_budget = 0;
  return names_of(problem, strategy.memory_budget > 0 && strategy.memory_plan.empty()
                               ? cuts_within_budget(forward, strategy, problem)
                               : best_partition(problem).cuts());
}

std::vector<std::string> balanced_cuts(const Graph& forward, const Strategy& strategy) {
  if (strategy.stages <= 1) return {};
  return best_cuts(forward, strategy,
                   partition_problem(forward, possible_cuts(forward, strategy.stages), strategy));
}

std::vector<std::string> cuts_of(const Graph& forward, const Strategy& strategy) {
  std::vector<std::string> cuts = strategy.cuts.empty() ? balanced_cuts(forward, strategy) : strategy.cuts;
  if (std::ssize(cuts) != strategy.stages - 1)
    throw Error(fmt::format("a pipeline of {} takes {}, the plan gives {}", counted(strategy.stages, "stage"),
                            counted(strategy.stages - 1, "cut"), cuts.size()));
  return cuts;
}

}  // namespace tandem::engine
