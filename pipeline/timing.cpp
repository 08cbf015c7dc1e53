#include <tandem/pipeline/timing.h>

#include <map>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>

namespace tandem::engine {
namespace {

class Timing {
 public:
  Timing(const Graph& graph, const PipelineSchedule& schedule)
      : g_(graph), schedule_(schedule), edit_(graph), weights_only_(graph.values().size(), false) {
    for (const Task& t : schedule.tasks) tasks_[{t.phase, t.stage, t.microbatch, t.array}] = &t;
    IdVector<ValueId, bool> constant(graph.values().size(), false);  // made from constants alone
    for (const Node& n : g_.nodes()) {
      bool only = true, any_weight = is_weight(n);
      for (ValueId v : n.inputs) {
        any_weight = any_weight || weights_only_[v];
        only = only && (weights_only_[v] || constant[v]) && g_.producer(v).tag.stage == n.tag.stage;
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
      if (node.tag.phase == Phase::backward && weights_of(node.tag).backward_age) use_own_reads(n);
    }
    age_forward_reads();
    return edit_.finish();
  }

 private:
  const WeightRule& weights_of(const Tag& tag) const {
    return schedule_.stages.at(static_cast<std::size_t>(tag.stage)).weights;
  }
  bool is_weight(const Node& n) const {
    const auto* read = as<ReadOp>(n);
    return read && g_.state(read->state).trained;
  }
  Tag timed(const Tag& tag) const {
    const Task wanted{tag.phase, tag.stage, tag.phase == Phase::update ? 0 : tag.microbatch, 0, 0, tag.array};
    const auto found = tasks_.find({wanted.phase, wanted.stage, wanted.microbatch, wanted.array});
    if (found == tasks_.end())
      throw Error(fmt::format("the schedule has no {} ('{}')", to_string(wanted), tag.path));
    return tag.timed(found->second->lag, found->second->lane);
  }

  // Backward gets its own reads of the weights, at its own lag, like the reads of the update. What came from
  // another stage is an activation: backward goes from the last stage to the first, before that stage has its
  // latest weights.
  void use_own_reads(NodeId n) {
    const Node& node = g_.node(n);
    for (ValueId v : node.inputs)
      if (const Tag& made = g_.producer(v).tag;
          weights_only_[v] && made.phase == Phase::forward && made.stage == node.tag.stage)
        edit_.rewire(n, v, own(v));
  }

  ValueId own(ValueId v) {
    const Node node = g_.producer(v);
    if (const auto found = own_.find(v); found != own_.end()) return found->second;
    std::vector<ValueId> inputs;
    for (ValueId in : node.inputs) inputs.push_back(own(in));
    const Tag tag = timed(node.tag.in_phase(Phase::backward));
    const NodeId copy = edit_.add(is_weight(node) ? aged(node, *weights_of(tag).backward_age) : node.op,
                                  std::move(inputs), tag);
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      own_[node.outputs[o]] = edit_.graph().node(copy).outputs[o];
    return own_.at(v);
  }

  // The read of a state, with another age.
  static OpPtr aged(const Node& node, int age) {
    const auto& read = static_cast<const ReadOp&>(*node.op);
    return std::make_shared<ReadOp>(read.state, age, read.type, read.models);
  }

  void age_forward_reads() {
    const auto readers = g_.readers();
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      const int age = weights_of(node.tag).forward_age;
      if (node.tag.phase != Phase::forward || !is_weight(node) || age == 1) continue;
      const ValueId read = edit_.add1(aged(node, age), {}, timed(node.tag));
      for (NodeId r : readers[node.outputs[0]]) edit_.rewire(r, node.outputs[0], read);
    }
  }

  const Graph& g_;
  const PipelineSchedule& schedule_;
  std::map<std::tuple<Phase, int, int, int>, const Task*> tasks_;
  GraphEdit edit_;
  IdVector<ValueId, bool> weights_only_;
  std::map<ValueId, ValueId> own_;
};

}  // namespace

Graph apply_timing(const Graph& graph, const PipelineSchedule& schedule) {
  return Timing(graph, schedule).run();
}

}  // namespace tandem::engine
