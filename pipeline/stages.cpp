#include <tandem/pipeline/stages.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/ops/copy.h>

namespace tandem::engine {
namespace {

std::string prefix_of(const std::string& path, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth && end != std::string::npos; ++i) end = path.find('.', i == 0 ? 0 : end + 1);
  return path.substr(0, end);
}

// The modules of this depth inside a module, in the order of their first node that computes.
std::string modules_inside(const Graph& g, const std::string& module, int depth) {
  std::vector<std::string> names;
  for (const Node& n : g.nodes()) {
    if (n.tag.path.empty() || is_leaf(n) || (!module.empty() && !in_module(n.tag.path, module))) continue;
    const std::string name = prefix_of(n.tag.path, depth);
    if (name != module && !contains(names, name)) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// The outermost modules, in the order of their first node that computes.
std::string names_of_modules(const Graph& g) { return modules_inside(g, "", 1); }

// The modules of the innermost module that a name is in, or the outermost ones.
std::string names_near(const Graph& g, std::string name) {
  int depth = 1 + static_cast<int>(std::ranges::count(name, '.'));
  for (; depth > 1; --depth) {
    name.resize(name.rfind('.'));
    if (const std::string names = modules_inside(g, name, depth); !names.empty()) return names;
  }
  return names_of_modules(g);
}

// A module in the order of the nodes.
struct Candidate {
  std::string name;
  NodeId first;  // its first node
  bool has_state = false;
};

// For each node with which modules begin, the outermost of them, or the outermost that has state. A module
// without state can be missing in evaluation, as dropout is.
std::vector<Candidate> modules_in_order(const Graph& g) {
  std::set<std::string> begun, have_state;
  const auto prefixes = [](const std::string& path) {
    std::vector<std::string> all;
    for (int depth = 1; all.empty() || all.back() != path; ++depth) all.push_back(prefix_of(path, depth));
    return all;
  };
  for (const Node& n : g.nodes())
    if (as<ReadOp>(n))
      for (const std::string& module : prefixes(n.tag.path)) have_state.insert(module);
  std::vector<Candidate> result;
  for (const NodeId id : g.nodes().ids()) {
    const Node& n = g.node(id);
    if (n.tag.path.empty() || is_leaf(n)) continue;
    const Candidate* added = nullptr;  // for this node
    for (const std::string& module : prefixes(n.tag.path)) {
      if (!begun.insert(module).second) continue;
      const bool has_state = have_state.contains(module);
      if (added && (added->has_state || !has_state)) continue;
      if (added) result.pop_back();
      added = &result.emplace_back(Candidate{module, id, has_state});
    }
  }
  return result;
}

// Removes the modules before which, or from which on, nothing is computed since the one before.
std::vector<Candidate> with_work(const Graph& g, const std::vector<Candidate>& modules) {
  const auto works = [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t n = first; n < end; ++n) {
      const Node& node = g.nodes()[static_cast<std::size_t>(n)];
      if (!is_leaf(node) && !view_of(g, node)) return true;
    }
    return false;
  };
  std::vector<Candidate> result;
  const auto index = [](NodeId id) { return static_cast<std::int64_t>(id); };
  for (const Candidate& m : modules)
    if (works(result.empty() ? 0 : index(result.back().first), index(m.first))) result.push_back(m);
  while (!result.empty() && !works(index(result.back().first), std::ssize(g.nodes()))) result.pop_back();
  return result;
}

// The stage of each node, −1 for leaves.
IdVector<NodeId, int> stages_of_nodes(const Graph& g, const std::vector<std::string>& cuts) {
  for (const std::string& cut : cuts)
    if (std::ranges::none_of(g.nodes(),
                             [&](const Node& n) { return !is_leaf(n) && in_module(n.tag.path, cut); }))
      throw Error(
          fmt::format("impossible cut: there is no module '{}' that computes something; the modules are: {}",
                      cut, names_near(g, cut)));
  IdVector<NodeId, int> stage(g.nodes().size(), -1);
  std::size_t current = 0;
  for (std::size_t n = 0; n < stage.size(); ++n) {
    const Node& node = g.nodes()[n];
    if (is_leaf(node)) continue;
    for (std::size_t c = current; c < cuts.size(); ++c) {
      if (!in_module(node.tag.path, cuts[c])) continue;
      if (c != current)
        throw Error(fmt::format("impossible cut: '{}' is reached before '{}'; the modules are, in order: {}",
                                cuts[c], cuts[current], names_of_modules(g)));
      ++current;
    }
    stage[n] = static_cast<int>(current);
  }
  if (current != cuts.size())
    throw Error(fmt::format(
        "impossible cut: '{}' does not come after the cuts before it; the modules are, in order: {}",
        cuts[current], names_of_modules(g)));
  for (std::size_t s = 0; s <= cuts.size(); ++s) {
    bool works = false;
    for (std::size_t n = 0; n < stage.size(); ++n)
      works = works || (stage[n] == static_cast<int>(s) && !view_of(g, g.nodes()[n]));
    if (!works)
      throw Error(fmt::format("impossible cut: nothing is left for stage {} to compute; the cuts are {}", s,
                              fmt::join(cuts, ", ")));
  }
  return stage;
}

// The nodes that use each state that forward assigns. They must stay on one stage.
std::map<StateId, std::set<NodeId>> users_of_assigned_states(const Graph& g, const Readers& readers) {
  std::map<StateId, std::set<NodeId>> users;
  for (const NodeId n : g.nodes().ids())
    if (const auto* assign = as<AssignOp>(g.node(n))) users[assign->state].insert(n);
  for (const Node& node : g.nodes())
    if (const auto* read = as<ReadOp>(node))
      if (const auto found = users.find(read->state); found != users.end())
        found->second.insert(readers[node.outputs[0]].begin(), readers[node.outputs[0]].end());
  return users;
}

// The first stage that uses each state; 0 if none does.
IdVector<StateId, int> owners_of_states(const Graph& g, const Readers& readers,
                                        const IdVector<NodeId, int>& stage) {
  for (const auto& [state, nodes] : users_of_assigned_states(g, readers)) {
    std::set<int> on;
    for (const NodeId n : nodes) on.insert(stage[n]);
    if (on.size() > 1)
      throw Error(fmt::format(
          "impossible cut: state '{}', which forward assigns, is used on stages {}; only a state that forward "
          "does not change can be used on several: cut elsewhere, so that its users stay together",
          g.state(state).path, fmt::join(on, " and ")));
  }
  IdVector<StateId, std::set<int>> users(g.states().size());
  for (const NodeId n : g.nodes().ids()) {
    const Node& node = g.node(n);
    if (const auto* assign = as<AssignOp>(node))
      users[assign->state].insert(stage[n]);
    else if (const auto* read = as<ReadOp>(node))
      for (const NodeId r : readers[node.outputs[0]]) users[read->state].insert(stage[r]);
  }
  IdVector<StateId, int> owners(g.states().size(), 0);
  for (const StateId s : g.states().ids())
    if (!users[s].empty()) owners[s] = *users[s].begin();
  return owners;
}

}  // namespace

Graph cut_into_stages(Graph graph, const std::vector<std::string>& cuts,
                      const std::vector<PipelineStage>& stages) {
  const IdVector<NodeId, int> stage = stages_of_nodes(graph, cuts);
  const auto readers = graph.readers();
  const IdVector<StateId, int> owner = owners_of_states(graph, readers, stage);
  const auto on = [&](const Tag& tag, int s) {
    return tag.on_stage(s, stages[static_cast<std::size_t>(s)].device);
  };
  GraphEdit edit(graph);
  for (const NodeId n : graph.nodes().ids()) {
    const Node& node = graph.node(n);
    if (stage[n] >= 0) {
      edit.set_tag(n, on(node.tag, stage[n]));
      continue;
    }
    const auto* read = as<ReadOp>(node);
    std::map<int, ValueId> source;  // one source per stage that uses it
    ValueId copy = -1;              // of a state, for all stages but its owner
    for (NodeId r : readers[node.outputs[0]]) {
      const int s = stage[r];
      if (source.empty()) {
        const int first = read ? owner[read->state] : s;
        edit.set_tag(n, on(node.tag, first));
        source[first] = node.outputs[0];
      }
      if (!source.contains(s)) {
        if (read && copy < 0)
          copy = edit.add1(std::make_shared<CopyOp>(), {node.outputs[0]}, on(node.tag, owner[read->state]));
        source[s] = read ? copy : edit.add1(node.op, {}, on(node.tag, s));
      }
      edit.rewire(r, node.outputs[0], source[s]);
    }
  }
  for (const StateId s : owner.ids()) {
    State& state = edit.state(s);
    state.stage = owner[s];
    state.device = stages[static_cast<std::size_t>(state.stage)].device;
  }
  return edit.finish();
}

std::vector<std::string> possible_cuts(const Graph& g, int stages) {
  std::vector<Candidate> all = modules_in_order(g);
  for (const auto& [state, nodes] : users_of_assigned_states(g, g.readers()))
    std::erase_if(all,
                  [&](const Candidate& m) { return *nodes.begin() < m.first && m.first <= *nodes.rbegin(); });
  std::vector<Candidate> lasting = all;
  std::erase_if(lasting, [](const Candidate& m) { return !m.has_state; });
  std::vector<Candidate> cuts = with_work(g, lasting);
  if (std::ssize(cuts) + 1 < stages) cuts = with_work(g, all);
  std::vector<std::string> names;
  for (const Candidate& m : cuts) names.push_back(m.name);
  if (std::ssize(cuts) + 1 < stages)
    throw Error(fmt::format("impossible cut: {} need {}, but the network can be cut only before {}",
                            counted(stages, "stage"), counted(stages - 1, "cut"),
                            cuts.empty() ? "no module" : fmt::format("{}", fmt::join(names, ", "))));
  return names;
}

}  // namespace tandem::engine
