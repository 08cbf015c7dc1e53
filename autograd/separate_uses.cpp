#include <tandem/autograd/separate_uses.h>

#include <set>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

bool is_cast(const Node& n) {
  const auto* pointwise = as<PointwiseOp>(n);
  return pointwise && pointwise->expression.size() == 1 &&
         pointwise->expression[0].code == PointwiseCode::input;
}

class Separation {
 public:
  Separation(const Graph& forward, int microbatches)
      : g_(forward), microbatches_(microbatches), state_(forward.values().size(), -1), rewrite_(forward) {
    for (const NodeId n : g_.nodes().ids()) find_uses(n);
  }

  SeparateUses run() {
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      std::vector<ValueId> inputs = rewrite_.now(node.inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (is_use(node) && is_shared(node.inputs[i])) inputs[i] = own(node.inputs[i], node.tag);
      rewrite_.copy(node, node.op, std::move(inputs));
      if (const auto* read = as<ReadOp>(node);
          read && g_.state(read->state).trained && !is_shared(node.outputs[0]))
        result_.reads[read->state] = {rewrite_.now(node.outputs[0])};
    }
    result_.graph = rewrite_.take();
    return std::move(result_);
  }

 private:
  // Marks what stands for a state: its read, copies and casts of it. Collects the stages of all other
  // readers.
  void find_uses(NodeId n) {
    const Node& node = g_.node(n);
    if (const auto* read = as<ReadOp>(node); read && g_.state(read->state).trained) {
      if (stages_.contains(read->state))
        throw Error(fmt::format("state '{}' is read twice in the forward graph", g_.state(read->state).path));
      stages_[read->state];
      state_[node.outputs[0]] = read->state;
    }
    for (const ValueId v : node.inputs) {
      if (state_[v] < 0 || as<BoundaryOp>(node)) continue;
      if (is_use(node))
        stages_[state_[v]].insert(node.tag.stage);
      else
        state_[node.outputs[0]] = state_[v];
    }
  }

  bool is_use(const Node& n) const { return !as<BoundaryOp>(n) && !as<CopyOp>(n) && !is_cast(n); }
  bool is_shared(ValueId v) const {
    return microbatches_ > 1 && state_[v] >= 0 && stages_.at(state_[v]).size() > 1;
  }

  // The value that the stage of this node has for itself.
  ValueId own(ValueId v, const Tag& user) {
    const auto [found, fresh] = own_.try_emplace({v, user.stage}, -1);
    return fresh ? found->second = repeated(v, user) : found->second;
  }
  ValueId repeated(ValueId v, const Tag& user) {
    const Node& node = g_.producer(v);
    std::vector<ValueId> inputs;
    for (const ValueId in : node.inputs) inputs.push_back(repeated(in, user));
    const ValueId result =
        rewrite_.add1(node.op, std::move(inputs), node.tag.on_stage(user.stage, user.device));
    result_.equal[result] = rewrite_.now(v);
    if (as<ReadOp>(node)) result_.reads[state_[v]].push_back(result);
    return result;
  }

  const Graph& g_;
  const int microbatches_;
  std::map<StateId, std::set<int>> stages_;         // that use each trained state
  IdVector<ValueId, StateId> state_;                // for which a value stands; −1: for none
  std::map<std::pair<ValueId, int>, ValueId> own_;  // by value and stage
  GraphRewrite rewrite_;
  SeparateUses result_;
};

}  // namespace

SeparateUses separate_uses(const Graph& forward, int microbatches) {
  return Separation(forward, microbatches).run();
}

}  // namespace tandem::engine
