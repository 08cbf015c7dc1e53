#include <tandem/plan/fuse_epilogues.h>

#include <algorithm>
#include <map>
#include <optional>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/epilogue.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

struct Fused {
  NodeId product, pointwise;
  NodeId place;                    // one of the two
  PointwiseExpression expression;  // its input 0 is the product's result
  std::vector<ValueId> others{};   // its other inputs
};

class EpilogueFusion {
 public:
  explicit EpilogueFusion(const Graph& graph) : g_(graph), readers_(graph.readers()) {
    for (const NodeId n : g_.nodes().ids())
      if (auto fused = fuse(n)) {
        by_node_[fused->product] = by_node_[n] = fused_.size();
        fused_.push_back(std::move(*fused));
      }
  }

  Graph rewritten() const {
    GraphRewrite rewrite(g_);
    for (const NodeId n : g_.nodes().ids()) {
      const auto found = by_node_.find(n);
      if (found == by_node_.end())
        rewrite.copy(g_.node(n));
      else if (const Fused& f = fused_[found->second]; f.place == n)
        write(f, rewrite);
    }
    return rewrite.take();
  }

 private:
  void write(const Fused& f, GraphRewrite& rewrite) const {
    const Node& product = g_.node(f.product);
    Node node = g_.node(f.pointwise);
    std::vector<ValueId> inputs = product.inputs;
    inputs.insert(inputs.end(), f.others.begin(), f.others.end());
    const auto op =
        std::make_shared<EpilogueOp>(product.op, product.inputs.size(), f.expression, node.op->label());
    node.tag = product.tag;
    rewrite.copy(node, op, rewrite.now(inputs));
  }

  std::optional<Fused> fuse(NodeId n) const {
    const Node& node = g_.node(n);
    const auto* expression = as<PointwiseOp>(node);
    if (!expression || node.inputs.size() > EpilogueOp::kMostInputs || updates_state(node))
      return std::nullopt;
    NodeId product = -1;
    for (const ValueId v : node.inputs)
      if (const NodeId p = g_.value(v).producer; p > product && may_take(p, n)) product = p;
    if (product < 0) return std::nullopt;
    auto fused = join(product, n, *expression);
    if (!fused || waits_for_transfers(*fused)) return std::nullopt;
    if (!adjacent(product, n)) {
      fused->place = product;
      if (std::ranges::any_of(fused->others, [&](ValueId v) { return g_.value(v).producer >= product; }))
        return std::nullopt;
    }
    return fused;
  }

  // True if the expression makes a state's next value from the last one. It does so in the state's memory; a
  // product would have to leave the old value there until it is read.
  bool updates_state(const Node& expression) const {
    return std::ranges::any_of(readers_[expression.outputs[0]], [&](NodeId r) {
      const auto* assign = as<AssignOp>(g_.node(r));
      return assign && std::ranges::any_of(expression.inputs, [&](ValueId v) {
               const NodeId maker = g_.value(v).producer;
               const auto* read = maker < 0 ? nullptr : as<ReadOp>(g_.node(maker));
               return read && read->state == assign->state;
             });
    });
  }

  // True if p is a product, and n has its result's type and is its only reader.
  bool may_take(NodeId p, NodeId n) const {
    const Node &product = g_.node(p), &expression = g_.node(n);
    if (product.op->precision() != Precision::low || product.outputs.size() != 1 || by_node_.contains(p))
      return false;
    const ValueId made = product.outputs[0];
    return readers_[made] == std::vector{n} && same_place(product.tag, expression.tag) &&
           g_.type(made) == g_.type(expression.outputs[0]);
  }

  std::optional<Fused> join(NodeId p, NodeId n, const PointwiseOp& expression) const {
    Fused fused{p, n, n, {}, {}};
    PointwiseBuilder builder;
    std::vector<int> registers;
    for (const ValueId v : g_.node(n).inputs) {
      int input = 0;
      if (v != g_.node(p).outputs[0]) {
        const auto found = std::ranges::find(fused.others, v);
        input = 1 + static_cast<int>(found - fused.others.begin());
        if (found == fused.others.end()) fused.others.push_back(v);
      }
      registers.push_back(builder.input(input));
    }
    std::vector<int> used;
    fused.expression = builder.finish(builder.append(expression.expression, registers), used);
    if (used.size() != 1 + fused.others.size()) return std::nullopt;  // it does not use all its inputs
    return fused;
  }

  // True if nothing is computed between the two.
  bool adjacent(NodeId p, NodeId n) const {
    for (NodeId between = p + 1; between < n; ++between)
      if (const Node& node = g_.node(between); !is_leaf(node) && !view_of(g_, node)) return false;
    return true;
  }

  // True if the product would wait for values that come from elsewhere; by itself it can run beside these.
  bool waits_for_transfers(const Fused& f) const {
    return std::ranges::any_of(f.others, [&](ValueId v) {
      const NodeId maker = g_.value(v).producer;
      return maker >= 0 && g_.node(maker).op->lane() != LaneKind::compute;
    });
  }

  const Graph& g_;
  const Readers readers_;
  std::vector<Fused> fused_;
  std::map<NodeId, std::size_t> by_node_;  // index in fused_, by product and by expression
};

}  // namespace

Graph fuse_epilogues(const Graph& graph) { return EpilogueFusion(graph).rewritten(); }

}  // namespace tandem::engine
