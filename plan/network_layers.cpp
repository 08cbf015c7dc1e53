#include <tandem/plan/network_layers.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <tandem/autograd/training_graph.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/pointwise.h>
#include <tandem/pipeline/stages.h>

namespace tandem::engine {
namespace {

constexpr double kFlopsPerSecond = 50e9, kBytesPerSecond = 10e9;

double seconds_of(const Graph& g, const Node& n) {
  const Work work = n.op->cost(g.types(n.inputs), g.types(n.outputs));
  return std::max(work.flops / kFlopsPerSecond, work.bytes / kBytesPerSecond);
}

bool is_sum(const Node& n) {
  const auto* pointwise = as<PointwiseOp>(n);
  return pointwise && pointwise->expression.back().code == PointwiseCode::add && n.inputs.size() == 2;
}

// Adds up the nodes of a training step whose stages are the layers.
class Layers {
 public:
  Layers(const TrainingGraph& step, std::size_t count, double microbatches)
      : g_(step.graph), microbatches_(microbatches), layers_(count), shared_(g_.values().size(), false) {
    const Readers readers = g_.readers();
    for (const Node& n : g_.nodes()) mark_made_of_weights(n);
    for (const auto& [state, gradient] : step.grads) mark_parts_of(gradient);
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      if (node.tag.phase == Phase::forward)
        layer(node.tag.stage).forward += microbatches_ * seconds_of(g_, node);
      if (node.tag.phase == Phase::backward)
        layer(node.tag.stage).backward += microbatches_ * seconds_of(g_, node);
      if ((is_leaf(node) && !as<InputOp>(node)) || view_of(g_, node)) continue;
      for (const ValueId v : node.outputs) add_value(v, readers);
    }
    for (const State& state : g_.states())
      layer(state.stage).weight_bytes += static_cast<double>(state.type.bytes());
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
    for (const int s : kept) layer(s).resident_bytes += bytes;
  }

  const Graph& g_;
  const double microbatches_;
  std::vector<PipelineLayer> layers_;
  IdVector<ValueId, bool> shared_;  // by all micro-batches
};

}  // namespace

PartitionProblem partition_problem(const Graph& forward, const std::vector<std::string>& cuts,
                                   const Strategy& strategy) {
  const std::vector<PipelineStage> stages(cuts.size() + 1);  // all on one device
  const Graph parts = cut_into_stages(remove_detaches(forward), cuts, stages);
  const TrainingGraph step = strategy.train ? training_graph(parts) : evaluation_graph(parts, 1);
  PartitionProblem problem{.layers = Layers(step, stages.size(), strategy.microbatches).layers(),
                           .schedule = schedule_of(strategy),
                           .link = strategy.link,
                           .memory_budget = static_cast<double>(strategy.memory_budget),
                           .optimizer_copies = static_cast<double>(states_per_parameter(strategy.optimizer))};
  problem.layers[0].name = "inputs";
  for (std::size_t k = 0; k < cuts.size(); ++k) problem.layers[k + 1].name = cuts[k];
  return problem;
}

std::vector<std::string> best_cuts(PartitionProblem problem) {
  if (problem.memory_budget > 0)
    problem.memory_budget = std::max(problem.memory_budget, least_memory_budget(problem));
  std::vector<std::string> cuts;
  for (const int cut : best_partition(problem).cuts())
    cuts.push_back(problem.layers[static_cast<std::size_t>(cut)].name);
  return cuts;
}

std::vector<std::string> balanced_cuts(const Graph& forward, const Strategy& strategy) {
  if (strategy.stages <= 1) return {};
  return best_cuts(partition_problem(forward, possible_cuts(forward, strategy.stages), strategy));
}

std::vector<std::string> cuts_of(const Graph& forward, const Strategy& strategy) {
  std::vector<std::string> cuts = strategy.cuts.empty() ? balanced_cuts(forward, strategy) : strategy.cuts;
  if (std::ssize(cuts) != strategy.stages - 1)
    throw Error(fmt::format("a pipeline of {} takes {}, the plan gives {}", counted(strategy.stages, "stage"),
                            counted(strategy.stages - 1, "cut"), cuts.size()));
  return cuts;
}

}  // namespace tandem::engine
