#include <tandem/plan/predict_weights.h>

#include <map>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

const ReadOp* read_of_weight(const Graph& g, NodeId n) {
  const auto* read = as<ReadOp>(g.node(n));
  return read && g.state(read->state).trained ? read : nullptr;
}

class Predictions {
 public:
  Predictions(Graph& graph, const PipelineSchedule& schedule, const Optimizer& optimizer,
              const std::vector<ParameterGroup>& groups, int models)
      : g_(graph),
        trace_(graph),
        schedule_(schedule),
        optimizer_(optimizer),
        groups_(groups),
        models_(models) {}

  /// Returns the weight that a reader in this phase uses instead of the weight that node `n` reads, or −1.
  ValueId of(NodeId n, Phase phase) {
    const Tag tag = g_.node(n).tag;
    const ReadOp& read = *read_of_weight(g_, n);
    const WeightRule& rule = schedule_.stages.at(static_cast<std::size_t>(tag.stage)).weights;
    // A backward that shares forward's read shares its prediction.
    const bool as_forward = phase == Phase::forward || tag.phase == Phase::forward;
    const int s = as_forward ? rule.forward_predicts : rule.backward_predicts;
    if (s == 0) return -1;
    const BatchRange updates{1 - read.age, s, rule.only_real_updates};
    const auto key = std::tuple(read.state, tag.lag, updates.first, updates.count);
    const auto [found, is_new] = predicted_.try_emplace(key, -1);
    if (is_new) found->second = predict(read, tag, updates);
    return found->second;
  }

 private:
  ValueId predict(const ReadOp& read, const Tag& tag, const BatchRange& updates) {
    const State weight = g_.state(read.state);
    trace_.set_tag(tag.at({Anchor::first_reader}));
    const auto kept = [&](const char* what) {
      const StateId s = g_.find_state(fmt::format("{}{}.{}", kOptimizerPath, what, weight.path));
      return trace_.apply(std::make_shared<ReadOp>(s, read.age, g_.state(s).type), {}).at(0);
    };
    const Tensor w = trace_.apply(std::make_shared<ReadOp>(read.state, read.age, read.type), {}).at(0);
    const ParameterGroup* group = group_of(groups_, weight.path);
    Tensor c = rates(tag, updates, weight.type.dtype);
    if (group && group->lr_scale != 1) c = scale(c, group->lr_scale);
    if (const auto* sgd = std::get_if<SgdOptions>(&optimizer_)) {
      if (sgd->momentum == 0)
        throw Error(
            "the schedule predicts weights along the momentum, which is 0: give the optimizer a momentum, or "
            "choose a schedule without predictions (dualpipe)");
      return trace_.value(tandem::predict(w, kept("momentum"), c));
    }
    AdamOptions adam = std::get<AdamOptions>(optimizer_);
    if (group && group->weight_decay) adam.weight_decay = *group->weight_decay;
    return trace_.value(adam_predict(w, kept("exp_avg"), kept("exp_avg_sq"), kept("step"), c, adam));
  }

  // The sum of the learning rates of these updates: one input for each lag of a stage.
  Tensor rates(const Tag& tag, const BatchRange& updates, DType weight) {
    const DType dtype = weight == DType::f64 ? DType::f64 : DType::f32;
    const auto key = std::tuple(tag.stage, tag.lag, updates.first, updates.count, dtype);
    const auto [found, is_new] = rates_.try_emplace(key);
    if (is_new) {
      const Shape per_model = models_ > 1 ? Shape{models_} : Shape{};
      trace_.set_tag(tag.named("").at({Anchor::first_reader}));
      found->second = trace_
                          .apply(std::make_shared<InputOp>(kLearningRateInput, TensorType{dtype, per_model},
                                                           /*per_model=*/true, updates),
                                 {})
                          .at(0);
      trace_.set_tag(tag.at({Anchor::first_reader}));
    }
    return found->second;
  }

  Graph& g_;
  Trace trace_;
  const PipelineSchedule& schedule_;
  const Optimizer& optimizer_;
  const std::vector<ParameterGroup>& groups_;
  const int models_;
  std::map<std::tuple<StateId, int, int, int>, ValueId> predicted_;
  std::map<std::tuple<int, int, int, int, DType>, Tensor> rates_;
};

}  // namespace

Graph predict_weights(Graph graph, const PipelineSchedule& schedule, const Optimizer& optimizer,
                      const std::vector<ParameterGroup>& groups, int models) {
  if (!schedule.predicts_weights()) return graph;
  struct Use {
    NodeId reader;
    ValueId weight, predicted;
  };
  std::vector<Use> uses;
  const auto readers = graph.readers();
  const NodeId end = graph.nodes().next_id();
  {
    Predictions predictions(graph, schedule, optimizer, groups, models);
    for (NodeId n = 0; n < end; ++n) {
      if (!read_of_weight(graph, n)) continue;
      const ValueId weight = graph.node(n).outputs[0];
      for (const NodeId reader : readers[weight])
        if (const Phase phase = graph.node(reader).tag.phase; phase != Phase::update)
          if (const ValueId predicted = predictions.of(n, phase); predicted >= 0)
            uses.push_back({reader, weight, predicted});
    }
  }
  GraphEdit edit(std::move(graph));
  for (const Use& use : uses) edit.rewire(use.reader, use.weight, use.predicted);
  return edit.finish();
}

}  // namespace tandem::engine
