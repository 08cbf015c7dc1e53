#include <tandem/memory/buffer_assignment.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/copy.h>

namespace tandem::engine {
namespace {

class BufferAssigner {
 public:
  BufferAssigner(const Graph& graph, std::span<const NodeId> order, const std::set<ValueId>& keep)
      : g_(graph),
        keep_(keep),
        position_(graph.nodes().size(), -1),
        root_(graph.values().size()),
        uses_(graph.values().size()) {
    buffers_.location.resize(graph.values().size());
    for (const State& s : graph.states())
      buffers_.blocks.push_back({s.path, s.device, Arena::state, s.type.bytes()});
    for (std::size_t i = 0; i < order.size(); ++i) position_[order[i]] = static_cast<int>(i);
    for (const NodeId n : graph.nodes().ids()) {
      const Node& node = g_.node(n);
      if (node.tag.stage > 0 || node.tag.microbatch > 0) one_task_ = false;
      for (ValueId v : node.outputs) root_[v] = v;
      if (const auto view = view_of(g_, node))
        root_[node.outputs[0]] = root_[*view];
      else
        for (ValueId v : node.inputs) uses_[root_[v]].push_back(n);
    }
    place_assigned();
    place_joined();
    share_in_place(order);
  }

  BufferAssignment take() { return std::move(buffers_); }

 private:
  ValueId root(ValueId v) const { return root_[v]; }
  Location& location(ValueId v) { return buffers_.location[v]; }
  const Node* maker(ValueId v) const { return g_.value(v).producer < 0 ? nullptr : &g_.producer(v); }
  bool is_read(ValueId v) const { return maker(v) && as<ReadOp>(*maker(v)); }
  bool is_free(ValueId v) const { return root(v) == v && maker(v) && !is_read(v) && !buffers_.location[v]; }

  // assign(state, v): v is made in the state's memory, unless it must lie elsewhere.
  void place_assigned() {
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      const auto* assign = as<AssignOp>(node);
      if (!assign) continue;
      const ValueId v = node.inputs[0];
      if (!is_free(v) || maker(v)->tag.lag != node.tag.lag || maker(v)->tag.stage != node.tag.stage) continue;
      if (maker(v)->op->joins_operands()) continue;  // it lies next to the others of its group
      location(v) = {block_of(assign->state), offset_of(assign->models, g_.state(assign->state).type), 1};
      buffers_.assigned_in_place.insert(n);
    }
  }

  // Places the operands of an op that joins them one after another, in its order.
  void place_joined() {
    for (const Node& node : g_.nodes()) {
      if (!node.op->joins_operands()) continue;
      const auto block = buffers_.blocks.next_id();
      buffers_.blocks.push_back({fmt::format("{} group", node.tag.path), node.tag.device, Arena::work, 0});
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId v = root(node.inputs[i]);
        if (!is_free(v))
          throw Error(fmt::format(
              "{}: an operand of {} already lies somewhere else; copy_shared_operands puts a copy between",
              node.tag.path, node.op->label()));
        MemoryBlock& b = buffers_.blocks.back();
        location(v) = location(node.outputs[i]) = {block, b.bytes, 0};
        buffers_.overwrites[node.outputs[i]] = v;
        b.bytes += align_up(g_.type(v).bytes());
      }
    }
  }

  // Under a pipeline, micro-batches and stages have lags of their own; arrays of models have one for forward
  // and one for backward, and no values in common.
  bool may_follow(const Tag& maker, const Tag& node) const {
    return one_task_ ? maker.lag <= node.lag : maker.lag == node.lag;
  }

  bool may_overwrite(ValueId r, NodeId n) const {
    const Node& node = g_.node(n);
    if (!maker(r) || is_read(r) || keep_.contains(r) || !may_follow(maker(r)->tag, node.tag) ||
        maker(r)->op->lane() != LaneKind::compute)
      return false;
    return std::ranges::all_of(uses_[r], [&](NodeId use) {
      const Tag& tag = g_.node(use).tag;
      return use == n || (std::pair(tag.lag, position_[use]) < std::pair(node.tag.lag, position_[n]) &&
                          tag.lane == node.tag.lane && g_.node(use).op->lane() == node.op->lane());
    });
  }

  // From the last node to the first, so that the place of an output passes on to the input it overwrites.
  void share_in_place(std::span<const NodeId> order) {
    for (std::size_t i = order.size(); i-- > 0;) {
      const NodeId n = order[i];
      const Node& node = g_.node(n);
      if (view_of(g_, node) || node.op->joins_operands()) continue;
      for (const Alias& a : node.op->may_alias(g_.types(node.inputs))) {
        const ValueId out = node.outputs[a.output], in = root(node.inputs[a.input]);
        if (buffers_.overwrites.contains(out) || taken_.contains(in) || root(out) != out) continue;
        if (g_.type(in).bytes() != g_.type(out).bytes() || !may_overwrite(in, n)) continue;
        if (location(in) || (location(out) && location(out).shift != 0)) continue;
        buffers_.overwrites[out] = in;
        taken_.insert(in);
        location(in) = location(out);  // a reserved place passes on; otherwise `out` follows `in` when made
      }
    }
  }

  const Graph& g_;
  const std::set<ValueId>& keep_;
  IdVector<NodeId, int> position_;
  IdVector<ValueId, ValueId> root_;
  IdVector<ValueId, std::vector<NodeId>> uses_;  // by root: the nodes that use it, without views
  bool one_task_ = true;                         // one stage and one micro-batch
  std::set<ValueId> taken_;                      // overwritten by an output
  BufferAssignment buffers_;
};

}  // namespace

Graph copy_shared_operands(const Graph& graph) {
  const auto readers = graph.readers();
  const auto is_own = [&](const Node& reader, ValueId v) {
    const Node& maker = graph.producer(v);
    return !view_of(graph, maker) && !as<ReadOp>(maker) && readers[v].size() == 1 &&
           std::ranges::count(reader.inputs, v) == 1;
  };
  GraphRewrite rewrite(graph);
  for (const Node& n : graph.nodes()) {
    std::vector<ValueId> inputs = rewrite.now(n.inputs);
    for (std::size_t i = 0; n.op->joins_operands() && i < inputs.size(); ++i) {
      if (!is_own(n, n.inputs[i]))
        inputs[i] = rewrite.add1(std::make_shared<CopyOp>(), {inputs[i]},
                                 n.tag.without_channel().at({Anchor::last_input}));
    }
    rewrite.copy(n, n.op, std::move(inputs));
  }
  return rewrite.take();
}

BufferAssignment assign_buffers(const Graph& graph, std::span<const NodeId> order,
                                const std::set<ValueId>& keep) {
  return BufferAssigner(graph, order, keep).take();
}

}  // namespace tandem::engine
