#include <tandem/memory/recompute.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/memory/activations.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kLarge = 64 << 10;  // bytes: a smaller saving is not worth a kernel
// This takes no longer than reading an f32 from memory, on machines that do 15 operations per byte.
constexpr double kFlopsPerElement = 64;
// A product with so many operations per element of its result takes three times as long as an exp of each
// element, or a function like it. Backward has two more such products.
constexpr double kFlopsBesideFunction = 1024;

// The tag of the node that computes v again. Lag and lane are those of its first reader in backward, or else
// of the first such reader of a value that is recomputed from v.
Tag tag_again(const Graph& g, const Readers& readers, const std::set<ValueId>& again, ValueId v) {
  const Tag tag = g.producer(v).tag.in_phase(Phase::backward);
  for (ValueId last = v;;) {
    if (const auto users = backward_readers(g, readers, last); !users.empty())
      return tag.timed_like(g.node(users.front()).tag);
    last = g.node(*std::ranges::find_if(readers[last], [&](NodeId r) {
              return !g.node(r).outputs.empty() && again.contains(g.node(r).outputs[0]);
            })).outputs[0];
  }
}

// Implements cheap_activations.
class CheapActivations {
 public:
  explicit CheapActivations(const Graph& graph) : g_(graph), readers_(graph.readers()) {
    for (const Node& node : graph.nodes())
      if (const auto* read = as<ReadOp>(node); read && read->age > 1) newest_weights_ = false;
  }

  std::vector<ValueId> find() {
    for (const Node& node : g_.nodes()) {
      if (node.tag.phase != Phase::forward || !(as<PointwiseOp>(node) || as<GroupNormOp>(node))) continue;
      const ValueId v = node.outputs[0];
      const auto users = backward_readers(g_, readers_, v);
      const bool together = std::ranges::all_of(users, [&](NodeId r) {
        const Tag& tag = g_.node(r).tag;
        return (tag.lag == node.tag.lag || newest_weights_) && tag.stage == node.tag.stage;
      });
      std::set<ValueId> chain;
      if (users.empty() || !together || g_.type(v).bytes() < kLarge) continue;
      if (is_function_of_product(node))
        again_.insert(v);
      else if (add_chain(v, kFlopsPerElement, chain))
        again_.insert(chain.begin(), chain.end());
    }
    return {again_.begin(), again_.end()};
  }

 private:
  // Adds v and the values needed to recompute it, if that costs at most `flops` operations per element.
  bool add_chain(ValueId v, double flops, std::set<ValueId>& chain) const {
    const Node& node = g_.producer(v);
    flops -= flops_of(node) / static_cast<double>(g_.type(v).elements());
    if (flops < 0) return false;
    chain.insert(v);
    return std::ranges::all_of(node.inputs, [&](ValueId in) {
      return is_small(in, node) || kept(in) ||
             (!again_.contains(in) && g_.type(in).elements() == g_.type(v).elements() &&
              g_.producer(in).tag.lag == node.tag.lag && add_chain(in, flops, chain));
    });
  }

  // True if the node makes an expression with functions, such as gelu, of a kept product that took much
  // longer.
  bool is_function_of_product(const Node& node) const {
    const auto* op = as<PointwiseOp>(node);
    if (!op || is_cheap(op->expression)) return false;
    const double least = kFlopsBesideFunction * static_cast<double>(expensive_terms(op->expression));
    const auto took_long = [&](ValueId in) {
      const NodeId maker = g_.value(viewed(in)).producer;
      if (maker < 0 || g_.node(maker).op->precision() != Precision::low) return false;
      const Node& product = g_.node(maker);
      const double flops = product.op->cost(g_.types(product.inputs), g_.types(product.outputs)).flops;
      return flops >= least * static_cast<double>(g_.type(in).elements());
    };
    return std::ranges::any_of(node.inputs, took_long) &&
           std::ranges::all_of(node.inputs, [&](ValueId in) { return is_small(in, node) || kept(in); });
  }

  // True if a value is less than half as large as what the node makes.
  bool is_small(ValueId in, const Node& node) const {
    return 2 * g_.type(in).bytes() < g_.type(node.outputs[0]).bytes();
  }

  // Infinite unless the node is a cheap expression, a norm, or a product.
  double flops_of(const Node& node) const {
    const auto* op = as<PointwiseOp>(node);
    if (op ? !is_cheap(op->expression) : !as<GroupNormOp>(node) && node.op->precision() != Precision::low)
      return std::numeric_limits<double>::infinity();
    return node.op->cost(g_.types(node.inputs), g_.types(node.outputs)).flops;
  }

  // What v is a view of; v itself if it is none.
  ValueId viewed(ValueId v) const {
    for (NodeId maker = g_.value(v).producer; maker >= 0; maker = g_.value(v).producer) {
      const auto view = view_of(g_, g_.node(maker));
      if (!view) break;
      v = *view;
    }
    return v;
  }

  // True if v is in memory while backward runs: a source, or an activation that is not recomputed.
  bool kept(ValueId v) const {
    v = viewed(v);
    const NodeId maker = g_.value(v).producer;
    return maker < 0 || g_.node(maker).inputs.empty() ||
           (!again_.contains(v) && !backward_readers(g_, readers_, v).empty());
  }

  const Graph& g_;
  const Readers readers_;
  bool newest_weights_ = true;  // backward comes before the next update of the weights that forward used
  std::set<ValueId> again_;
};

}  // namespace

Graph insert_recomputes(Graph g, const std::vector<ValueId>& values) {
  if (values.empty()) return g;
  GraphEdit edit(g);
  const auto readers = g.readers();
  const std::set<ValueId> again(values.begin(), values.end());
  std::map<ValueId, ValueId> copies;
  // Inputs precede their readers, so ascending ids visit inputs first.
  for (ValueId v : again) {
    const Node& node = g.producer(v);
    if (!copies.contains(v)) {
      std::vector<ValueId> inputs;
      for (ValueId in : node.inputs) inputs.push_back(copies.contains(in) ? copies.at(in) : in);
      const NodeId copy = edit.add(node.op, std::move(inputs), tag_again(g, readers, again, v));
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        copies[node.outputs[o]] = edit.graph().node(copy).outputs[o];
    }
    for (NodeId r : backward_readers(g, readers, v)) edit.rewire(r, v, copies.at(v));
  }
  return edit.finish();
}

std::vector<ValueId> cheap_activations(const Graph& graph) { return CheapActivations(graph).find(); }

}  // namespace tandem::engine
