#include <tandem/plan/predict_weights.h>

#include <map>
#include <tuple>

#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/plan/weight_predictor.h>

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
      : g_(graph), trace_(graph), schedule_(schedule), predictor_(trace_, optimizer, groups, models) {}

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
    if (is_new)
      found->second =
          trace_.value(predictor_.predict(read.state, read.age, updates, tag.at({Anchor::first_reader})));
    return found->second;
  }

 private:
  Graph& g_;
  Trace trace_;
  const PipelineSchedule& schedule_;
  WeightPredictor predictor_;
  std::map<std::tuple<StateId, int, int, int>, ValueId> predicted_;
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
