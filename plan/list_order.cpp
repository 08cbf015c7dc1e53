#include <tandem/plan/list_order.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>

namespace tandem::engine {
namespace {

// A node is listed at or next to another node of its task, its anchor. Nodes with one anchor are listed in
// this order.
enum class Side : std::uint8_t {
  before,         // nodes that the anchor is the first to need
  itself,         // the anchor
  send,           // the sends of its value, with their receives
  after,          // the collectives and copies that come after it
  before_update,  // nodes that the update needs, such as a learning rate
  update          // the update by the gradient that the anchor makes
};

// Places are compared from the first member to the last.
struct Place {
  std::size_t task = 0;
  std::size_t end = 0;  // 0: among the nodes of the task; above: at its end, in this order
  NodeId anchor = 0;
  Side side = Side::before;
  NodeId node = -1;
  auto operator<=>(const Place&) const = default;
};

Place next_to(const Place& anchor, Side side, NodeId n) {
  return {anchor.task, anchor.end, anchor.anchor, side, n};
}

// One side earlier than `p`.
Place just_before(const Place& p, NodeId n) {
  return next_to(p, p.side == Side::before ? p.side : static_cast<Side>(static_cast<int>(p.side) - 1), n);
}

class Ordering {
 public:
  Ordering(const Graph& graph, const std::vector<Task>& tasks, bool large_gradients_last)
      : g_(graph), readers_(graph.readers()), tasks_(tasks) {
    for (std::size_t i = 0; i < tasks.size(); ++i)
      task_[{tasks[i].phase, tasks[i].stage, tasks[i].microbatch, tasks[i].array}] = i;
    for (const NodeId n : g_.nodes().ids())
      places_.push_back({task_of(g_.node(n).tag), 0, n, Side::itself, n});
    for (const auto& [channel, ends] : channels()) {
      if (ends.first < 0 || ends.second < 0) continue;
      if (follows_lane(ends.first)) put_after_inputs(ends.first, Side::send);
      if (follows_lane(ends.second)) place(ends.second) = next_to(place(ends.first), Side::send, ends.second);
    }
    for (const NodeId n : g_.nodes().ids())
      if (anchor_of(n) == Anchor::last_input) put_after_inputs(n, Side::after);
    for (NodeId n = count(); n-- > 0;)
      if (anchor_of(n) == Anchor::first_reader) put_before_readers(n);
    if (large_gradients_last)
      for (const NodeId n : g_.nodes().ids()) defer_gradient(n);
    for (const NodeId n : g_.nodes().ids()) advance_update(n);
    for (NodeId n = count(); n-- > 0;) advance_source(n);
  }

  std::vector<NodeId> run() {
    IdVector<NodeId, int> missing(g_.nodes().size(), 0);
    IdVector<NodeId, std::vector<NodeId>> next(g_.nodes().size());
    const auto edge = [&](NodeId from, NodeId to) {
      next[from].push_back(to);
      ++missing[to];
    };
    for (const NodeId n : g_.nodes().ids())
      for (ValueId v : g_.node(n).inputs) {
        const NodeId from = g_.value(v).producer;
        // A value from an earlier lag exists before the unit begins, wherever its maker is listed.
        if (from >= 0 && g_.node(from).tag.lag == g_.node(n).tag.lag) edge(from, n);
      }
    for (const auto& [reader, update] : weight_uses()) edge(reader, update);
    for (const auto& [channel, ends] : channels())
      if (ends.first >= 0 && ends.second >= 0) edge(ends.first, ends.second);
    for (const auto& [from, to] : barrier_uses()) edge(from, to);
    std::priority_queue<Place, std::vector<Place>, std::greater<>> ready;
    for (const NodeId n : g_.nodes().ids())
      if (missing[n] == 0) ready.push(place(n));
    std::vector<NodeId> order;
    while (!ready.empty()) {
      const NodeId n = ready.top().node;
      ready.pop();
      order.push_back(n);
      for (NodeId to : next[n])
        if (--missing[to] == 0) ready.push(place(to));
    }
    if (order.size() != g_.nodes().size()) refuse_cycle(missing);
    return order;
  }

 private:
  Place& place(NodeId n) { return places_[n]; }
  const Place& place(NodeId n) const { return places_[n]; }
  NodeId count() const { return g_.nodes().next_id(); }

  std::size_t task_of(const Tag& tag) const {
    const int microbatch = tag.phase == Phase::update ? 0 : tag.microbatch;
    const auto found = task_.find({tag.phase, tag.stage, microbatch, tag.array});
    if (found == task_.end())
      throw Error(fmt::format("the schedule has no {} ('{}')",
                              to_string(Task{tag.phase, tag.stage, microbatch, 0, 0, tag.array}), tag.path));
    return found->second;
  }

  std::map<std::int64_t, std::pair<NodeId, NodeId>> channels() const {  // send, receive
    std::map<std::int64_t, std::pair<NodeId, NodeId>> ends;
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      auto& end = ends.try_emplace(node.tag.channel, -1, -1).first->second;
      if (node.op->lane() == LaneKind::send) end.first = n;
      if (node.op->lane() == LaneKind::receive) end.second = n;
    }
    ends.erase(-1);
    return ends;
  }

  [[noreturn]] void refuse_cycle(const IdVector<NodeId, int>& missing) const {
    std::vector<std::string> stuck;
    for (NodeId n = 0; n < count() && stuck.size() < 8; ++n)
      if (missing[n] > 0)
        stuck.push_back(fmt::format("{} {} (stage {})", g_.node(n).tag.path, g_.node(n).op->label(),
                                    g_.node(n).tag.stage));
    throw Error(fmt::format(
        "transfers, barriers and updates wait for each other in a circle; in it or after it are: {}",
        fmt::join(stuck, ", ")));
  }

  // True if no pass has said where the node is listed.
  bool follows_lane(NodeId n) const { return g_.node(n).tag.position.anchor == Anchor::of_lane; }
  Anchor anchor_of(NodeId n) const {
    if (!follows_lane(n)) return g_.node(n).tag.position.anchor;
    switch (g_.node(n).op->lane()) {
      case LaneKind::collective:
      case LaneKind::timer:
      case LaneKind::copy_out: return Anchor::last_input;
      case LaneKind::copy_in: return Anchor::first_reader;
      case LaneKind::send:
      case LaneKind::receive:
      case LaneKind::compute: break;
    }
    return Anchor::itself;
  }
  // A pass chooses a position within the node's task. What follows its lane can be listed in another task.
  bool can_anchor(NodeId other, NodeId n) const {
    return follows_lane(n) || place(other).task == task_of(g_.node(n).tag);
  }

  // After the last of the nodes whose values node n waits for.
  void put_after_inputs(NodeId n, Side side) {
    if (g_.node(n).inputs.empty()) return;
    std::optional<Place> last;
    for (ValueId v : g_.node(n).inputs)
      if (const NodeId from = g_.value(v).producer;
          from >= 0 && g_.node(from).tag.lag == g_.node(n).tag.lag && can_anchor(from, n))
        last = std::max(last.value_or(place(from)), place(from));
    if (last || follows_lane(n)) place(n) = next_to(last.value_or(Place{}), side, n);
  }

  void put_before_readers(NodeId n) {
    const auto reader = first_reader(n);
    if (!reader) return;
    const int ahead = g_.node(n).tag.position.ahead;
    place(n) = ahead > 0 ? Place{reader->task, reader->end, reader->anchor - ahead, Side::after, n}
                         : just_before(*reader, n);
  }

  // The first place among the nodes that read a value of node n.
  std::optional<Place> first_reader(NodeId n) const {
    std::optional<Place> first;
    for (ValueId v : g_.node(n).outputs)
      for (NodeId r : readers_[v])
        if (can_anchor(r, n)) first = std::min(first.value_or(place(r)), place(r));
    return first;
  }

  // Nodes that use a weight at an update's lag, and the node that makes the weight's next value.
  std::vector<std::pair<NodeId, NodeId>> weight_uses() const {
    std::map<std::pair<StateId, int>, NodeId> updates;  // by state and first model
    for (const Node& n : g_.nodes())
      if (const auto* assign = as<AssignOp>(n); assign && n.tag.phase == Phase::update)
        updates[{assign->state, assign->models.first}] = g_.value(n.inputs[0]).producer;
    std::vector<std::pair<NodeId, NodeId>> uses;
    for (const Node& n : g_.nodes()) {
      const auto* read = as<ReadOp>(n);
      const auto found = read ? updates.find({read->state, read->models.first}) : updates.end();
      if (found == updates.end()) continue;
      const NodeId update = found->second;
      for (NodeId r : readers_[n.outputs[0]])
        if (r != update && g_.node(r).tag.phase != Phase::update &&
            g_.node(r).tag.lag == g_.node(update).tag.lag)
          uses.emplace_back(r, update);
    }
    return uses;
  }

  // Orders the compute nodes of each device by its barriers: what a barrier is listed after comes first.
  std::vector<std::pair<NodeId, NodeId>> barrier_uses() const {
    std::map<int, std::vector<NodeId>> barriers;  // by device, in the order of their tasks
    for (const NodeId n : g_.nodes().ids())
      if (g_.node(n).op->is_barrier()) barriers[g_.node(n).tag.device].push_back(n);
    const auto task = [&](NodeId n) { return place(n).task; };
    std::vector<std::pair<NodeId, NodeId>> uses;
    for (auto& [device, all] : barriers) {
      std::ranges::sort(all, {}, task);
      for (std::size_t i = 1; i < all.size(); ++i) uses.emplace_back(all[i - 1], all[i]);
    }
    for (const NodeId n : g_.nodes().ids()) {
      const Node& node = g_.node(n);
      const auto found = barriers.find(node.tag.device);
      if (found == barriers.end() || node.op->is_barrier() || node.op->lane() != LaneKind::compute) continue;
      const auto& all = found->second;
      const auto next = std::ranges::upper_bound(all, task(n), {}, task);
      if (next != all.end()) uses.emplace_back(n, *next);
      if (next != all.begin()) uses.emplace_back(*std::prev(next), n);
    }
    return uses;
  }

  // A gradient that is much larger than its operands comes last in its task: by then the activations are
  // freed, and it takes their place. Not if other ranks wait for it.
  void defer_gradient(NodeId n) {
    const Node& node = g_.node(n);
    if (node.tag.phase != Phase::backward || node.op->lane() != LaneKind::compute || !follows_lane(n) ||
        node.outputs.size() != 1)
      return;
    const auto& all = readers_[node.outputs[0]];
    const bool only_updates =
        std::all_of(all.begin(), all.end(), [&](NodeId r) { return g_.node(r).tag.phase == Phase::update; });
    std::int64_t needs = 0;
    for (ValueId v : node.inputs) needs += g_.type(v).bytes();
    if (all.empty() || !only_updates || g_.type(node.outputs[0]).bytes() < 2 * needs) return;
    place(n).end = 1;
  }

  // True if between two tasks the stage computes, with the weights from before its update, or a tick ends.
  bool must_wait(std::size_t first, std::size_t last, const Tag& update) const {
    return first < last &&
           std::any_of(
               tasks_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
               tasks_.begin() + static_cast<std::ptrdiff_t>(last), [&](const Task& t) {
                 return t.phase == Phase::barrier ||
                        (t.phase != Phase::update && t.stage == update.stage && t.array == update.array);
               });
  }

  // Next to the node that makes its gradient, unless the schedule lists something between them that comes
  // before the update.
  void advance_update(NodeId n) {
    const Node& node = g_.node(n);
    if (node.tag.phase != Phase::update || node.inputs.empty() || !follows_lane(n)) return;
    NodeId gradient = -1;
    for (ValueId v : node.inputs)
      if (const NodeId from = g_.value(v).producer; from >= 0 && g_.node(from).tag.phase == Phase::backward)
        gradient = from;
    if (gradient < 0) return;
    const Place& made = place(gradient);
    if (g_.node(gradient).op->lane() == LaneKind::collective)  // at the end, in the order of the all-reduces
      place(n) = {place(n).task, 1 + made.task, made.anchor, Side::itself, n};
    else if (g_.node(gradient).tag.lag == node.tag.lag && !must_wait(made.task, place(n).task, node.tag))
      place(n) = next_to(made, Side::update, n);
  }

  // A node of the update without inputs, such as a learning rate, comes before its first reader.
  void advance_source(NodeId n) {
    if (g_.node(n).tag.phase != Phase::update || !g_.node(n).inputs.empty() || !follows_lane(n)) return;
    if (const auto reader = first_reader(n)) place(n) = std::min(place(n), just_before(*reader, n));
  }

  const Graph& g_;
  Readers readers_;
  const std::vector<Task>& tasks_;
  std::map<std::tuple<Phase, int, int, int>, std::size_t> task_;
  IdVector<NodeId, Place> places_;
};

}  // namespace

std::vector<NodeId> list_order(const Graph& graph, const std::vector<Task>& tasks,
                               bool large_gradients_last) {
  return Ordering(graph, tasks, large_gradients_last).run();
}

}  // namespace tandem::engine
