#include <tandem/pipeline/timing.h>

#include <map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>

namespace tandem::engine {
namespace {

class Timing {
 public:
  Timing(const Graph& graph, const std::vector<StageTiming>& stages)
      : g_(graph), stages_(stages), edit_(graph), weights_only_(graph.values().size(), false) {
    IdVector<ValueId, bool> constant(graph.values().size(), false);  // made from constants alone
    for (const Node& n : g_.nodes()) {
      bool only = true, any_weight = is_weight(n);
      for (ValueId v : n.inputs) {
        any_weight = any_weight || weights_only_[v];
        only = only && (weights_only_[v] || constant[v]);
      }
      const bool fixed = as<ConstantOp>(n) || (!n.inputs.empty() && only && !any_weight);
      for (ValueId v : n.outputs) {
        weights_only_[v] = only && any_weight;
        constant[v] = fixed;
      }
    }
  }

  Graph run() {
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      edit_.set_tag(n, timed(node.tag));
      if (node.tag.phase == Phase::backward && !timing(node.tag).backward_shares_read) use_latest(n);
    }
    age_forward_reads();
    return edit_.finish();
  }

 private:
  const StageTiming& timing(const Tag& tag) const { return stages_.at(static_cast<std::size_t>(tag.stage)); }
  bool is_weight(const Node& n) const {
    const auto* read = as<ReadOp>(n);
    return read && g_.state(read->state).trained;
  }
  Tag timed(const Tag& tag) const {
    const StageTiming& t = timing(tag);
    return tag.phase == Phase::forward ? tag.timed(t.forward_lag, 0)
                                       : tag.timed(t.backward_lag, t.backward_lane);
  }

  // Backward gets its own reads of the weights, of age 1 at its own lag, like the reads of the update.
  void use_latest(NodeId n) {
    const std::vector<ValueId> inputs = g_.node(n).inputs;
    for (ValueId v : inputs)
      if (weights_only_[v] && g_.producer(v).tag.phase == Phase::forward)
        edit_.rewire(n, v, own(v, g_.node(n).tag.stage));
  }

  // The user must be on the value's stage, because backward goes from the last stage to the first.
  ValueId own(ValueId v, int stage) {
    const Node node = g_.producer(v);
    if (node.tag.stage != stage)
      throw Error(fmt::format(
          "impossible cut: {} on stage {} is computed from weights alone and used on stage {}, whose "
          "backward would need its latest value before stage {} has it; cut elsewhere, so that both are on "
          "one stage, or choose a schedule whose backward uses the weights of its forward",
          node.op->label(), node.tag.stage, stage, node.tag.stage));
    if (const auto found = own_.find(v); found != own_.end()) return found->second;
    std::vector<ValueId> inputs;
    for (ValueId in : node.inputs) inputs.push_back(own(in, stage));
    const NodeId copy = edit_.add(node.op, std::move(inputs), timed(node.tag.in_phase(Phase::backward)));
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      own_[node.outputs[o]] = edit_.graph().node(copy).outputs[o];
    return own_.at(v);
  }

  void age_forward_reads() {
    const auto readers = g_.readers();
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      const int age = timing(node.tag).forward_age;
      if (node.tag.phase != Phase::forward || !is_weight(node) || age == 1) continue;
      const auto& read = static_cast<const ReadOp&>(*node.op);
      const ValueId aged =
          edit_.add1(std::make_shared<ReadOp>(read.state, age, read.type), {}, timed(node.tag));
      for (NodeId r : readers[node.outputs[0]]) edit_.rewire(r, node.outputs[0], aged);
    }
  }

  const Graph& g_;
  const std::vector<StageTiming>& stages_;
  GraphEdit edit_;
  IdVector<ValueId, bool> weights_only_;
  std::map<ValueId, ValueId> own_;
};

}  // namespace

Graph apply_timing(const Graph& graph, const std::vector<StageTiming>& stages) {
  return Timing(graph, stages).run();
}

}  // namespace tandem::engine
