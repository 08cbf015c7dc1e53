#include <tandem/plan/fuse_pointwise.h>

#include <algorithm>
#include <optional>
#include <set>

#include <tandem/core/graph_ops.h>
#include <tandem/ops/pointwise.h>

namespace tandem {
namespace {

// What one expression may hold. More gains nothing: its tiles would no longer fit the first-level cache.
constexpr std::size_t kMaxInputs = 12, kMaxInstructions = 48;

struct Expression {
  PointwiseProgram program;
  std::vector<ValueId> inputs;
};

bool same_place(const Tag& a, const Tag& b) {
  return a.stage == b.stage && a.lag == b.lag && a.lane == b.lane && a.phase == b.phase &&
         a.microbatch == b.microbatch && a.channel == b.channel;
}

bool is_comparison(PointwiseCode code) { return code >= PointwiseCode::eq && code <= PointwiseCode::ge; }

class Fusion {
 public:
  explicit Fusion(const Graph& graph)
      : g_(graph), readers_(graph.readers()), expressions_(graph.nodes().size()) {
    for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n)
      if (const auto* op = pointwise(n)) expressions_[at(n)] = expression(n, *op);
  }

  Graph rewritten() const {
    Graph result;
    for (const StateSlot& s : g_.slots()) result.add_slot(s);
    std::vector<ValueId> to(g_.values().size(), -1);
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes().size()); ++n) {
      const Node& node = g_.node(n);
      if (absorbed_.contains(n)) continue;
      OpPtr op = node.op;
      std::vector<ValueId> inputs = node.inputs;
      if (const auto& e = expressions_[at(n)]; e && e->inputs != inputs) {
        op = std::make_shared<Pointwise>(e->program, pointwise(n)->dtype);
        inputs = e->inputs;
      }
      for (ValueId& v : inputs) v = to[at(v)];
      const Node& added = result.node(result.add(std::move(op), std::move(inputs), node.tag));
      for (std::size_t o = 0; o < node.outputs.size(); ++o) to[at(node.outputs[o])] = added.outputs[o];
    }
    return result;
  }

 private:
  static std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }
  const Pointwise* pointwise(NodeId n) const { return dynamic_cast<const Pointwise*>(g_.node(n).op.get()); }
  DType precision(const std::vector<ValueId>& inputs, DType output) const {
    return pointwise_precision(g_.types(inputs), output);
  }

  // Node n with all that it can absorb.
  Expression expression(NodeId n, const Pointwise& op) {
    Expression result{op.program, g_.node(n).inputs};
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < result.inputs.size() && !more; ++i) {
        const NodeId p = g_.value(result.inputs[i]).producer;
        if (p < 0 || !expressions_[at(p)] || !may_move(p, n)) continue;
        if (auto joined = join(result, i, p, n)) {
          result = std::move(*joined);
          absorbed_.insert(p);
          more = true;
        }
      }
    }
    return result;
  }

  bool may_move(NodeId p, NodeId n) const {
    const ValueId made = g_.node(p).outputs[0];
    return readers_[at(made)].size() == 1 && same_place(g_.node(p).tag, g_.node(n).tag) &&
           g_.type(made).shape == g_.type(g_.node(n).outputs[0]).shape &&
           (adjacent(p, n) || kept_alive(p, n) <= 1);
  }

  // Nothing is computed between the two but what joins them.
  bool adjacent(NodeId p, NodeId n) const {
    for (NodeId between = p + 1; between < n; ++between)
      if (const Node& node = g_.node(between); !absorbed_.contains(between) && !node.inputs.empty() &&
                                               !view_of(g_, node) && same_place(node.tag, g_.node(n).tag))
        return false;
    return true;
  }

  // Tensors of the size of what p makes that nobody would need after p, were it not for its place at n.
  int kept_alive(NodeId p, NodeId n) const {
    const std::int64_t size = g_.type(g_.node(p).outputs[0]).bytes();
    int count = 0;
    for (ValueId v : expressions_[at(p)]->inputs) {
      const NodeId maker = g_.value(v).producer;
      const bool lasts = maker < 0 || g_.node(maker).inputs.empty();  // state, the host's data
      const auto& all = readers_[at(v)];
      const bool needed_later = std::any_of(all.begin(), all.end(), [&](NodeId r) { return r >= n; });
      count += !lasts && !needed_later && 2 * g_.type(v).bytes() >= size;
    }
    return count;
  }

  // `outer`, whose input i is what p makes, with p's expression in its place.
  std::optional<Expression> join(const Expression& outer, std::size_t i, NodeId p, NodeId n) const {
    const Expression& inner = *expressions_[at(p)];
    const DType made = pointwise(p)->dtype, output = pointwise(n)->dtype;
    Expression result;
    for (const Expression* e : {&inner, &outer})
      for (ValueId v : e->inputs)
        if ((e == &inner || v != outer.inputs[i]) &&
            std::find(result.inputs.begin(), result.inputs.end(), v) == result.inputs.end())
          result.inputs.push_back(v);
    const DType arithmetic = precision(result.inputs, output);
    if (result.inputs.size() > kMaxInputs || arithmetic != precision(inner.inputs, made) ||
        arithmetic != precision(outer.inputs, output))
      return std::nullopt;
    PointwiseBuilder builder;
    const auto registers = [&](const std::vector<ValueId>& values, int joined) {
      std::vector<int> list;
      for (ValueId v : values)
        list.push_back(
            v == outer.inputs[i] && joined >= 0
                ? joined
                : builder.input(static_cast<int>(std::find(result.inputs.begin(), result.inputs.end(), v) -
                                                 result.inputs.begin())));
      return list;
    };
    int value = builder.append(inner.program, registers(inner.inputs, -1));
    if (made != arithmetic && !is_comparison(inner.program.back().code)) value = builder.cast(value, made);
    const int last = builder.append(outer.program, registers(outer.inputs, value));
    std::vector<int> used;
    result.program = builder.finish(last, used);
    if (result.program.size() > kMaxInstructions || used.size() != result.inputs.size()) return std::nullopt;
    return result;
  }

  const Graph& g_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<std::optional<Expression>> expressions_;  // of pointwise nodes
  std::set<NodeId> absorbed_;
};

}  // namespace

Graph fuse_pointwise(const Graph& graph) { return Fusion(graph).rewritten(); }

}  // namespace tandem
