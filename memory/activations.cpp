#include <tandem/memory/activations.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>

namespace tandem::engine {
namespace {

std::string name_of(const Node& n) {  // a node outside all modules has no path
  return n.tag.path.empty() ? n.op->label() : fmt::format("{} {}", n.tag.path, n.op->label());
}

bool named(const std::string& entry, const Node& n) {
  return entry == "*" || entry == name_of(n) || (!n.tag.path.empty() && in_module(n.tag.path, entry));
}

// The values that forward makes or receives and backward reads.
std::vector<ValueId> activations(const Graph& g, Eviction how) {
  const auto readers = g.readers();
  std::vector<ValueId> result;
  for (const Node& n : g.nodes()) {
    const bool received = n.op->lane() == LaneKind::receive;
    const bool computed = n.op->lane() == LaneKind::compute && !n.inputs.empty() && !view_of(g, n);
    if (n.tag.phase != Phase::forward || !(computed || (received && how == Eviction::swap))) continue;
    for (ValueId v : n.outputs)
      if (!backward_readers(g, readers, v).empty()) result.push_back(v);
  }
  return result;
}

[[noreturn]] void refuse(const std::string& entry, const Graph& g, Eviction how) {
  constexpr std::ptrdiff_t kMost = 16;
  std::set<std::string> names;
  for (ValueId v : activations(g, how)) names.insert(name_of(g.producer(v)));
  const std::ptrdiff_t more = std::ssize(names) - kMost;
  const auto last = more > 0 ? std::next(names.begin(), kMost) : names.end();
  throw Error(fmt::format("plan: '{}' names no activation; there are: {}{}", entry,
                          names.empty() ? "none" : fmt::format("{}", fmt::join(names.begin(), last, ", ")),
                          more > 0 ? fmt::format(" and {} more", more) : ""));
}

bool names_any(const std::string& entry, const Graph& g, const std::vector<ValueId>& values) {
  return std::ranges::any_of(values, [&](ValueId v) { return named(entry, g.producer(v)); });
}

// The first node of backward that reads `v`, directly or through forward's views; −1: there is none.
NodeId backward_reader_through_views(const Graph& g, const Readers& readers, ValueId v) {
  if (const auto direct = backward_readers(g, readers, v); !direct.empty()) return direct.front();
  for (const NodeId r : readers[v])
    if (g.node(r).tag.phase == Phase::forward && view_of(g, g.node(r)))
      if (const NodeId through = backward_reader_through_views(g, readers, g.node(r).outputs[0]);
          through >= 0)
        return through;
  return -1;
}

}  // namespace

std::vector<NodeId> backward_readers(const Graph& g, const Readers& readers, ValueId v) {
  std::vector<NodeId> result;
  for (NodeId r : readers[v])
    if (g.node(r).tag.phase == Phase::backward) result.push_back(r);
  return result;
}

Graph with_backward_views(const Graph& g) {
  GraphEdit edit(g);
  const auto readers = g.readers();
  std::map<ValueId, ValueId> again;
  for (const NodeId n : g.nodes().ids()) {
    const Node& node = g.node(n);
    if (node.tag.phase != Phase::forward || !view_of(g, node)) continue;
    const ValueId v = node.outputs[0];
    const NodeId reader = backward_reader_through_views(g, readers, v);
    if (reader < 0) continue;
    const Tag tag = node.tag.in_phase(Phase::backward).timed_like(g.node(reader).tag);
    const auto source = again.find(node.inputs[0]);
    again[v] = edit.add1(node.op, {source == again.end() ? node.inputs[0] : source->second}, tag);
    for (NodeId r : backward_readers(g, readers, v)) edit.rewire(r, v, again[v]);
  }
  return edit.finish();
}

std::vector<ValueId> select_activations(const Graph& g, const Selection& selection, Eviction how,
                                        const Graph* before_recomputes) {
  const std::vector<ValueId> candidates = activations(g, how);
  std::set<ValueId> chosen;
  for (const std::string& entry : selection) {
    for (ValueId v : candidates)
      if (named(entry, g.producer(v))) chosen.insert(v);
    if (names_any(entry, g, candidates)) continue;
    if (!before_recomputes || !names_any(entry, *before_recomputes, activations(*before_recomputes, how)))
      refuse(entry, g, how);
    if (how == Eviction::swap)
      throw Error(
          fmt::format("plan: '{}' cannot be swapped: it is recomputed already, because the plan says so "
                      "or because that costs next to nothing",
                      entry));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace tandem::engine
