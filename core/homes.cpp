#include <tandem/core/homes.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/graph_ops.h>
#include <tandem/core/memory.h>

namespace tandem {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

class HomeFinder {
 public:
  HomeFinder(const Graph& graph, std::span<const NodeId> order, Program& program)
      : g_(graph),
        p_(program),
        position_(graph.nodes().size(), -1),
        root_(graph.values().size()),
        uses_(graph.values().size()) {
    homes_.of.resize(graph.values().size());
    for (std::size_t i = 0; i < order.size(); ++i) position_[at(order[i])] = static_cast<int>(i);
    for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n) {
      const Node& node = g_.node(n);
      for (ValueId v : node.outputs) root_[at(v)] = v;
      if (const auto view = view_of(g_, node))
        root_[at(node.outputs[0])] = root_[at(*view)];
      else
        for (ValueId v : node.inputs) uses_[at(root_[at(v)])].push_back(n);
    }
    place_assigned();
    place_reduced();
    share_in_place(order);
  }

  Homes take() { return std::move(homes_); }

 private:
  ValueId root(ValueId v) const { return root_[at(v)]; }
  Home& home(ValueId v) { return homes_.of[at(v)]; }
  const Node* maker(ValueId v) const {
    return g_.value(v).producer < 0 ? nullptr : &g_.node(g_.value(v).producer);
  }
  bool is_read(ValueId v) const { return maker(v) && dynamic_cast<const Read*>(maker(v)->op.get()); }
  bool is_free(ValueId v) const { return root(v) == v && maker(v) && !is_read(v) && !homes_.of[at(v)]; }

  // assign(slot, v): v is made where the state lies, unless it lies elsewhere for another reason.
  void place_assigned() {
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes().size()); ++n) {
      const Node& node = g_.node(n);
      const auto* assign = dynamic_cast<const Assign*>(node.op.get());
      if (!assign) continue;
      const ValueId v = node.inputs[0];
      if (!is_free(v) || maker(v)->tag.lag != node.tag.lag || maker(v)->tag.stage != node.tag.stage) continue;
      if (maker(v)->op->lane() == LaneKind::collective) continue;  // made beside the others of its group
      home(v) = {p_.states[at(assign->slot)].block, 0, 1};
      homes_.assigned_in_place.insert(n);
    }
  }

  // The tensors of one all-reduce side by side, in its order.
  void place_reduced() {
    for (const Node& node : g_.nodes()) {
      if (node.op->lane() != LaneKind::collective || node.inputs.empty()) continue;
      const auto block = static_cast<BlockId>(p_.blocks.size());
      p_.blocks.push_back({fmt::format("{} group", node.tag.path), node.tag.stage, Arena::work, 0});
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId v = root(node.inputs[i]);
        if (!is_free(v))
          throw Error(fmt::format(
              "{}: a value of the all-reduce is already part of something else; a copy must come between",
              node.tag.path));
        MemoryBlock& b = p_.blocks.back();
        home(v) = home(node.outputs[i]) = {block, b.bytes, 0};
        homes_.overwrites[node.outputs[i]] = v;
        b.bytes += align_up(g_.type(v).bytes());
      }
    }
  }

  bool may_overwrite(ValueId r, NodeId n) const {
    const Node& node = g_.node(n);
    if (!maker(r) || is_read(r) || maker(r)->tag.lag != node.tag.lag ||
        maker(r)->op->lane() != LaneKind::compute)
      return false;
    return std::all_of(uses_[at(r)].begin(), uses_[at(r)].end(), [&](NodeId use) {
      const Tag& tag = g_.node(use).tag;
      return use == n || (position_[at(use)] < position_[at(n)] && tag.lag == node.tag.lag &&
                          tag.lane == node.tag.lane && g_.node(use).op->lane() == node.op->lane());
    });
  }

  // From the last node to the first, so that a place reserved for an output passes on to what it overwrites.
  void share_in_place(std::span<const NodeId> order) {
    for (std::size_t i = order.size(); i-- > 0;) {
      const NodeId n = order[i];
      const Node& node = g_.node(n);
      if (view_of(g_, node) || node.op->lane() == LaneKind::collective) continue;
      for (const Alias& a : node.op->may_alias(g_.types(node.inputs))) {
        const ValueId out = node.outputs[static_cast<std::size_t>(a.output)];
        const ValueId in = root(node.inputs[static_cast<std::size_t>(a.input)]);
        if (homes_.overwrites.contains(out) || taken_.contains(in) || root(out) != out) continue;
        if (g_.type(in).bytes() != g_.type(out).bytes() || !may_overwrite(in, n)) continue;
        if (home(in) || (home(out) && home(out).shift != 0)) continue;
        homes_.overwrites[out] = in;
        taken_.insert(in);
        home(in) = home(out);  // a reserved place passes on; otherwise `out` follows `in` when made
      }
    }
  }

  const Graph& g_;
  Program& p_;
  std::vector<int> position_;
  std::vector<ValueId> root_;
  std::vector<std::vector<NodeId>> uses_;  // of roots, by nodes that are not views
  std::set<ValueId> taken_;                // overwritten by an output
  Homes homes_;
};

}  // namespace

Homes find_homes(const Graph& graph, std::span<const NodeId> order, Program& program) {
  return HomeFinder(graph, order, program).take();
}

}  // namespace tandem
