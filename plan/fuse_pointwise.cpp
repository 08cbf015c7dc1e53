#include <tandem/plan/fuse_pointwise.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

// Limits of one expression. A larger one gains nothing: its tiles would not fit the first-level cache.
constexpr std::size_t kMaxInputs = 12, kMaxTerms = 48;

struct Expression {
  PointwiseExpression expression;
  std::vector<ValueId> inputs;
};

bool is_comparison(PointwiseCode code) { return code >= PointwiseCode::eq && code <= PointwiseCode::ge; }

// The index of an input; the number of inputs if it is none.
std::size_t place_of(ValueId v, const Expression& e) {
  return static_cast<std::size_t>(std::ranges::find(e.inputs, v) - e.inputs.begin());
}

// Arrays of models view each statistic of a norm in forward and again in backward. Of equal views one is
// kept, so that an expression which takes in both parts reads and computes once what they have in common.
Graph without_equal_views(const Graph& graph) {
  GraphRewrite rewrite(graph);
  std::map<std::tuple<ValueId, std::string, int, int, int>, ValueId> views;
  for (const Node& node : graph.nodes()) {
    if (!view_of(graph, node)) {
      rewrite.copy(node);
      continue;
    }
    const ValueId source = rewrite.now(node.inputs[0]), made = node.outputs[0];
    const auto [first, is_new] = views.try_emplace({source, signature(*node.op, graph.types(node.inputs)),
                                                    node.tag.stage, node.tag.lane, node.tag.microbatch});
    if (is_new) {
      rewrite.copy(node);
      first->second = rewrite.now(made);
    } else {
      rewrite.replace(made, first->second);
    }
  }
  return rewrite.take();
}

// Visits nodes in order, so that an expression has taken in all it can before another takes it in.
class Fusion {
 public:
  explicit Fusion(const Graph& graph)
      : g_(graph), readers_(graph.readers()), expressions_(graph.nodes().size()) {
    for (const NodeId n : graph.nodes().ids())
      if (const Node& node = graph.node(n); !is_leaf(node) && !view_of(graph, node))
        computing_[task_of(node.tag)].push_back(n);
    for (const NodeId n : graph.nodes().ids())
      if (reader(n)) expressions_[n] = expression(n);
  }

  // Leaves out the nodes that no other node reads any more.
  Graph rewritten() const {
    const IdVector<NodeId, bool> needed = needed_nodes();
    GraphRewrite rewrite(g_);
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      if (!needed[n]) continue;
      const std::vector<ValueId> all = inputs_of(n);
      rewrite.copy(node, all == node.inputs ? node.op : with_expression(n), rewrite.now(all));
    }
    return rewrite.take();
  }

 private:
  using TaskKey = std::tuple<Phase, int, int>;  // phase, stage, micro-batch
  static TaskKey task_of(const Tag& tag) { return {tag.phase, tag.stage, tag.microbatch}; }
  // The op of n, or of each of its models, if it takes an expression, else null.
  const TakesExpression* reader(NodeId n) const {
    const auto* mapped = as<MappedOp>(g_.node(n));
    if (mapped && mapped->is_varied()) return nullptr;
    return dynamic_cast<const TakesExpression*>(mapped ? mapped->inner.get() : g_.node(n).op.get());
  }
  OpPtr with_expression(NodeId n) const {
    OpPtr op = reader(n)->with(expressions_[n]->expression);
    const auto* all = as<MappedOp>(g_.node(n));
    if (!all) return op;
    std::vector<bool> mapped(all->mapped.begin(),
                             all->mapped.begin() + static_cast<std::ptrdiff_t>(reader(n)->first));
    for (const ValueId v : expressions_[n]->inputs)
      mapped.push_back(g_.type(v).rank() == shape_of_value(n).size());
    return std::make_shared<MappedOp>(std::move(op), std::move(mapped), all->models);
  }
  // Whether n can read these inputs of an expression: each has the axis of its models, or is the same for
  // all.
  bool can_read(NodeId n, const Expression& e) const {
    const auto* all = as<MappedOp>(g_.node(n));
    const std::size_t rank = shape_of_value(n).size();
    return !all || std::ranges::all_of(e.inputs, [&](ValueId v) {
      const Shape& shape = g_.type(v).shape;
      return shape.size() < rank || shape[0] == all->models;
    });
  }
  // The op of n if its expression can become a part of another, else null.
  const PointwiseOp* pointwise(NodeId n) const { return n < 0 ? nullptr : as<PointwiseOp>(g_.node(n)); }
  DType precision(const std::vector<ValueId>& inputs, DType output) const {
    return pointwise_precision(g_.types(inputs), output);
  }
  NodeId producer(ValueId v) const { return g_.value(v).producer; }

  // A node's inputs after fusion: its own, and those of its expression.
  std::vector<ValueId> inputs_of(NodeId n) const {
    const Node& node = g_.node(n);
    if (!expressions_[n]) return node.inputs;
    std::vector<ValueId> all = parts(n).first;
    all.insert(all.end(), expressions_[n]->inputs.begin(), expressions_[n]->inputs.end());
    return all;
  }

  IdVector<NodeId, bool> needed_nodes() const {
    IdVector<NodeId, bool> needed(g_.nodes().size(), true);
    IdVector<ValueId, int> uses(g_.values().size());
    for (auto n = g_.nodes().next_id(); n-- > 0;) {
      const ValueId made = pointwise(n) ? g_.node(n).outputs[0] : ValueId();
      needed[n] = made < 0 || uses[made] > 0 || readers_[made].empty();
      if (!needed[n]) continue;
      for (ValueId v : inputs_of(n)) ++uses[v];
    }
    return needed;
  }

  // A node's own inputs, and its expression before fusion.
  std::pair<std::vector<ValueId>, Expression> parts(NodeId n) const {
    const auto& inputs = g_.node(n).inputs;
    const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(reader(n)->first);
    return {{inputs.begin(), middle}, {reader(n)->expression, {middle, inputs.end()}}};
  }

  // The expression of node n after it has taken in all it can.
  Expression expression(NodeId n) {
    auto [own, result] = parts(n);
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < result.inputs.size() && !more; ++i) {
        const NodeId p = producer(result.inputs[i]);
        if (!pointwise(p)) continue;
        auto joined = may_move(p, n) ? join(result, i, p, n) : std::nullopt;
        if (joined)
          absorbed_.insert(p);
        else
          joined = with_copy(result, i, n, own);
        if (!joined) continue;
        result = std::move(*joined);
        more = true;
      }
    }
    return result;
  }

  bool may_move(NodeId p, NodeId n) const {
    const ValueId made = g_.node(p).outputs[0];
    return readers_[made].size() == 1 && same_place(g_.node(p).tag, g_.node(n).tag) && same_size(p, n) &&
           (adjacent(p, n) || kept_alive(p, n) <= 1);
  }

  // True if the values of p and of n's expression have the same shape.
  bool same_size(NodeId p, NodeId n) const {
    return g_.type(g_.node(p).outputs[0]).shape == shape_of_value(n);
  }
  Shape shape_of_value(NodeId n) const {
    const Types operands = g_.types(g_.node(n).inputs);
    const auto* op = reader(n);
    return PointwiseOp(op->expression, op->dtype).infer(std::span(operands).subspan(op->first))[0].shape;
  }

  // True if all that is computed between the two has been absorbed.
  bool adjacent(NodeId p, NodeId n) const {
    const auto& task = computing_.at(task_of(g_.node(n).tag));
    for (auto between = std::ranges::upper_bound(task, p); between != task.end() && *between < n; ++between)
      if (!absorbed_.contains(*between) && same_place(g_.node(*between).tag, g_.node(n).tag)) return false;
    return true;
  }

  // The number of large tensors that must live longer if p moves to n.
  int kept_alive(NodeId p, NodeId n) const {
    int count = 0;
    for (ValueId v : large(expressions_[p]->inputs, p)) {
      const auto& all = readers_[v];
      const bool lasts = producer(v) < 0 || g_.node(producer(v)).inputs.empty();  // state, the host's data
      count += !lasts && std::ranges::none_of(all, [&](NodeId r) { return r >= n; });
    }
    return count;
  }

  // The values of at least half the size of the value that p makes.
  std::set<ValueId> large(const std::vector<ValueId>& values, NodeId p) const {
    const std::int64_t size = g_.type(g_.node(p).outputs[0]).bytes();
    std::set<ValueId> result;
    for (ValueId v : values)
      if (2 * g_.type(v).bytes() >= size) result.insert(v);
    return result;
  }

  // `outer`, the expression of node n, with a copy of the expression that makes its input i, if that pays: n
  // then reads less, since it reads the copy's inputs anyway; or as much, and all readers of the value copy
  // it, so that it need not be made. `own` are the other inputs of n.
  std::optional<Expression> with_copy(const Expression& outer, std::size_t i, NodeId n,
                                      const std::vector<ValueId>& own) const {
    const NodeId p = producer(outer.inputs[i]);
    auto copy = copied(outer, i, n, own);
    if (!copy) return copy;
    const std::size_t before = reads(outer, own, p), now = reads(*copy, own, p);
    return now < before || (now == before && all_would_copy(p)) ? copy : std::nullopt;
  }

  // The number of large inputs.
  std::size_t reads(const Expression& e, const std::vector<ValueId>& own, NodeId p) const {
    std::vector<ValueId> all = own;
    all.insert(all.end(), e.inputs.begin(), e.inputs.end());
    return large(all, p).size();
  }

  // The same, whether it pays or not. The copy's inputs are copied in turn if that reduces the reads.
  std::optional<Expression> copied(const Expression& outer, std::size_t i, NodeId n,
                                   const std::vector<ValueId>& own) const {
    const NodeId p = producer(outer.inputs[i]);
    auto copy = may_copy(p, n) ? join(outer, i, p, n) : std::nullopt;
    for (bool more = copy.has_value(); more;) {
      more = false;
      for (std::size_t k = 0; k < copy->inputs.size() && !more; ++k) {
        const NodeId q = producer(copy->inputs[k]);
        if (!may_copy(q, n)) continue;
        if (auto deeper = join(*copy, k, q, n); deeper && reads(*deeper, own, p) < reads(*copy, own, p)) {
          copy = std::move(deeper);
          more = true;
        }
      }
    }
    return copy;
  }

  bool all_would_copy(NodeId p) const {
    const ValueId made = g_.node(p).outputs[0];
    return std::ranges::all_of(readers_[made], [&](NodeId r) {
      if (!reader(r)) return false;
      const auto [own, e] = parts(r);
      const std::size_t place = place_of(made, e);
      if (place == e.inputs.size()) return false;
      const auto copy = copied(e, place, r, own);
      return copy && reads(*copy, own, p) <= reads(e, own, p);
    });
  }

  bool may_copy(NodeId p, NodeId n) const {
    if (!pointwise(p) || !expressions_[p] || !same_size(p, n)) return false;  // or not visited yet
    const Tag &a = g_.node(p).tag, &b = g_.node(n).tag;
    return a.stage == b.stage && a.lag == b.lag && a.lane == b.lane && a.microbatch == b.microbatch &&
           is_cheap(expressions_[p]->expression);
  }

  // `outer`, an expression of n, with p's expression in the place of its input i.
  std::optional<Expression> join(const Expression& outer, std::size_t i, NodeId p, NodeId n) const {
    const DType output = reader(n)->dtype;
    const Expression& inner = *expressions_[p];
    const DType made = pointwise(p)->dtype;
    Expression result;
    for (const Expression* e : {&inner, &outer})
      for (ValueId v : e->inputs)
        if ((e == &inner || v != outer.inputs[i]) && place_of(v, result) == result.inputs.size())
          result.inputs.push_back(v);
    const DType arithmetic = precision(result.inputs, output);
    if (result.inputs.size() > kMaxInputs || !can_read(n, result) ||
        arithmetic != precision(inner.inputs, made) || arithmetic != precision(outer.inputs, output))
      return std::nullopt;
    PointwiseBuilder builder;
    const auto registers = [&](const std::vector<ValueId>& values, int joined) {
      std::vector<int> list;
      for (ValueId v : values)
        list.push_back(v == outer.inputs[i] && joined >= 0
                           ? joined
                           : builder.input(static_cast<int>(place_of(v, result))));
      return list;
    };
    int value = builder.append(inner.expression, registers(inner.inputs, -1));
    if (made != arithmetic && !is_comparison(inner.expression.back().code)) value = builder.cast(value, made);
    const int last = builder.append(outer.expression, registers(outer.inputs, value));
    std::vector<int> used;
    result.expression = builder.finish(last, used);
    if (result.expression.size() > kMaxTerms || used.size() != result.inputs.size()) return std::nullopt;
    return result;
  }

  const Graph& g_;
  const Readers readers_;
  std::map<TaskKey, std::vector<NodeId>> computing_;         // the nodes of a task that compute, in order
  IdVector<NodeId, std::optional<Expression>> expressions_;  // by node, if it takes one
  std::set<NodeId> absorbed_;                                // nodes that became a part of their only reader
};

}  // namespace

Graph fuse_pointwise(const Graph& graph) {
  const Graph merged = without_equal_views(graph);
  return Fusion(merged).rewritten();
}

}  // namespace tandem::engine
