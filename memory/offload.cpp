#include <tandem/memory/offload.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/error.h>
#include <tandem/core/graph_edit.h>
#include <tandem/core/graph_ops.h>
#include <tandem/ops/copy.h>

namespace tandem {
namespace {

std::vector<NodeId> backward_readers(const Graph& g, const std::vector<std::vector<NodeId>>& readers,
                                     ValueId v) {
  std::vector<NodeId> result;
  for (NodeId r : readers[static_cast<std::size_t>(v)])
    if (g.node(r).tag.phase == Phase::backward) result.push_back(r);
  return result;
}

std::string name_of(const Node& n) {  // what the model itself does, outside its modules, has no path
  return n.tag.path.empty() ? n.op->label() : fmt::format("{} {}", n.tag.path, n.op->label());
}

bool named(const std::string& entry, const Node& n) {
  const std::string& path = n.tag.path;
  return entry == "*" || entry == name_of(n) || (!path.empty() && entry == path) ||
         (path.size() > entry.size() && path.starts_with(entry) && path[entry.size()] == '.');
}

// What forward makes, or receives, and backward reads.
std::vector<ValueId> activations(const Graph& g, Takeoff how) {
  const auto readers = g.readers();
  std::vector<ValueId> result;
  for (const Node& n : g.nodes()) {
    const bool received = n.op->lane() == LaneKind::receive;
    const bool computed = n.op->lane() == LaneKind::compute && !n.inputs.empty() && !view_of(g, n);
    if (n.tag.phase != Phase::forward || !(computed || (received && how == Takeoff::swap))) continue;
    for (ValueId v : n.outputs)
      if (!backward_readers(g, readers, v).empty()) result.push_back(v);
  }
  return result;
}

const Node& maker(const Graph& g, ValueId v) { return g.node(g.value(v).producer); }

[[noreturn]] void refuse(const std::string& entry, const Graph& g, Takeoff how,
                         const Graph* before_recomputes) {
  if (before_recomputes)
    for (ValueId v : activations(*before_recomputes, how))
      if (named(entry, maker(*before_recomputes, v)))
        throw Error(fmt::format(
            "plan: '{}' cannot be swapped: it is recomputed already; name it in one list only", entry));
  std::set<std::string> names;
  for (ValueId v : activations(g, how)) names.insert(name_of(maker(g, v)));
  throw Error(fmt::format("plan: '{}' names no activation; there are: {}", entry,
                          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace

Graph with_backward_views(const Graph& g) {
  GraphEdit edit(g);
  const auto readers = g.readers();
  std::map<ValueId, ValueId> again;
  for (NodeId n = 0; n < static_cast<NodeId>(g.nodes().size()); ++n) {
    const Node node = g.node(n);
    if (node.tag.phase != Phase::forward || !view_of(g, node)) continue;
    const auto users = backward_readers(g, readers, node.outputs[0]);
    const auto source = again.find(node.inputs[0]);
    if (users.empty() && source == again.end()) {
      // A view of a view that backward reads is met later; make this one too where one of those follows.
      const auto& next = readers[static_cast<std::size_t>(node.outputs[0])];
      if (std::none_of(next.begin(), next.end(), [&](NodeId r) {
            return g.node(r).tag.phase == Phase::forward && view_of(g, g.node(r));
          }))
        continue;
    }
    Tag tag = node.tag;
    tag.phase = Phase::backward;
    if (!users.empty()) {
      tag.lag = g.node(users.front()).tag.lag;
      tag.lane = g.node(users.front()).tag.lane;
    }
    const NodeId copy = edit.add(node.op, {source == again.end() ? node.inputs[0] : source->second}, tag);
    again[node.outputs[0]] = edit.graph().node(copy).outputs[0];
    for (NodeId r : users) edit.rewire(r, node.outputs[0], again[node.outputs[0]]);
  }
  return edit.finish();
}

std::vector<ValueId> select_activations(const Graph& g, const Selection& selection, Takeoff how,
                                        const Graph* before_recomputes) {
  const std::vector<ValueId> candidates = activations(g, how);
  std::set<ValueId> chosen;
  for (const std::string& entry : selection) {
    bool any = false;
    for (ValueId v : candidates)
      if (named(entry, maker(g, v))) {
        chosen.insert(v);
        any = true;
      }
    if (!any) refuse(entry, g, how, before_recomputes);
  }
  return {chosen.begin(), chosen.end()};
}

Graph insert_swaps(const Graph& g, const std::vector<ValueId>& values) {
  GraphEdit edit(g);
  const auto readers = g.readers();
  for (ValueId v : values) {
    const auto users = backward_readers(g, readers, v);
    Tag made = g.node(g.value(v).producer).tag;
    made.channel = -1;  // of the transfer that brought it, if one did
    const NodeId out = edit.add(std::make_shared<CopyOut>(), {v}, made);
    Tag tag = g.node(users.front()).tag;
    tag.path = made.path;
    const NodeId in = edit.add(std::make_shared<CopyIn>(), edit.graph().node(out).outputs, tag);
    for (NodeId r : users) edit.rewire(r, v, edit.graph().node(in).outputs[0]);
  }
  return edit.finish();
}

Graph insert_recomputes(const Graph& g, const std::vector<ValueId>& values) {
  GraphEdit edit(g);
  const auto readers = g.readers();
  const std::set<ValueId> again(values.begin(), values.end());
  std::map<ValueId, ValueId> copies;
  // Inputs precede their readers, so ascending ids meet sources first.
  for (ValueId v : again) {
    const Node node = g.node(g.value(v).producer);
    if (!copies.contains(v)) {
      Tag tag = node.tag;
      const Tag& user = g.node(backward_readers(g, readers, v).front()).tag;
      tag.phase = Phase::backward;
      tag.lag = user.lag;
      tag.lane = user.lane;
      std::vector<ValueId> inputs;
      for (ValueId in : node.inputs) inputs.push_back(copies.contains(in) ? copies.at(in) : in);
      const NodeId copy = edit.add(node.op, std::move(inputs), tag);
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        copies[node.outputs[o]] = edit.graph().node(copy).outputs[o];
    }
    for (NodeId r : backward_readers(g, readers, v)) edit.rewire(r, v, copies.at(v));
  }
  return edit.finish();
}

Program with_copy_waits(Program p, int release_distance) {
  const auto kind = [&](StepId s) { return p.lane_of(s).kind; };
  const auto device = [&](StepId s) { return p.lane_of(s).device; };
  const auto count = static_cast<StepId>(p.steps.size());
  // Steps in whose sequence the copy stands: of its lag, on the lane that made or will use the value.
  const auto beside = [&](StepId c, StepId copy) {
    const Step &step = p.steps[static_cast<std::size_t>(c)], &of = p.steps[static_cast<std::size_t>(copy)];
    return kind(c) == LaneKind::compute && device(c) == device(copy) && p.lane_of(c).index == of.tag.lane &&
           step.lag == of.lag;
  };
  for (StepId s = 0; s < count; ++s) {
    if (kind(s) == LaneKind::copy_out) {
      int passed = 0;
      for (StepId c = s + 1; c < count; ++c)
        if (beside(c, s) && ++passed == release_distance) {
          p.steps[static_cast<std::size_t>(c)].waits.push_back({s, 0});
          break;
        }
    } else if (kind(s) == LaneKind::copy_in) {
      for (StepId c = s; c-- > 0;)
        if (beside(c, s)) {
          p.steps[static_cast<std::size_t>(s)].waits.push_back({c, 0});
          break;
        }
    }
  }
  return p;
}

}  // namespace tandem
