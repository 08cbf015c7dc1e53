#include <tandem/pipeline/stages.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/ops/copy.h>

namespace tandem::engine {
namespace {

bool is_source(const Node& n) { return as<InputOp>(n) || as<ConstantOp>(n); }

std::string prefix_of(const std::string& path, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth && end != std::string::npos; ++i) end = path.find('.', i == 0 ? 0 : end + 1);
  return path.substr(0, end);
}

struct Candidate {  // a module that might begin a stage
  std::string name;
  double flops = 0;
  bool has_state = false;
};
using Candidates = std::vector<Candidate>;

// One past the last if there is none.
const Candidate* find(const Candidates& list, const std::string& name) {
  return std::find_if(list.data(), list.data() + list.size(), [&](const auto& m) { return m.name == name; });
}

// Modules at a depth, in the order of their first node that computes.
Candidates modules(const Graph& g, int depth) {
  Candidates result;
  std::set<std::string> have_state;
  for (const Node& n : g.nodes()) {
    if (n.tag.path.empty() || is_source(n)) continue;
    const std::string name = prefix_of(n.tag.path, depth);
    if (as<ReadOp>(n)) {
      have_state.insert(name);
      continue;
    }
    const auto at = static_cast<std::size_t>(find(result, name) - result.data());
    if (at == result.size()) result.push_back({name});
    result[at].flops += n.op->cost(g.types(n.inputs), g.types(n.outputs)).flops;
  }
  for (Candidate& m : result) m.has_state = have_state.contains(m.name);
  return result;
}

std::string names_of(const Candidates& list) {
  std::vector<std::string> names;
  for (const auto& m : list) names.push_back(m.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Removes the modules that must not begin a stage, and adds their work to the module before.
Candidates joined(const Candidates& list, const std::function<bool(const Candidate&)>& may_begin) {
  Candidates result;
  for (const Candidate& m : list)
    if (result.empty() || may_begin(m))
      result.push_back(m);
    else
      result.back().flops += m.flops;
  return result;
}

// The stage of each node, −1 for leaves.
IdVector<NodeId, int> stages_of_nodes(const Graph& g, const std::vector<std::string>& cuts) {
  IdVector<NodeId, int> stage(g.nodes().size(), -1);
  std::size_t current = 0;
  for (std::size_t n = 0; n < stage.size(); ++n) {
    const Node& node = g.nodes()[n];
    if (is_leaf(node)) continue;
    for (std::size_t c = current; c < cuts.size(); ++c) {
      if (!in_module(node.tag.path, cuts[c])) continue;
      if (c != current)
        throw Error(fmt::format("impossible cut: '{}' is reached before '{}'; the modules are, in order: {}",
                                cuts[c], cuts[current], names_of(modules(g, 1))));
      ++current;
    }
    stage[n] = static_cast<int>(current);
  }
  if (current != cuts.size())
    throw Error(
        fmt::format("impossible cut: there is no module '{}' after the ones before it; the modules are: {}",
                    cuts[current], names_of(modules(g, 1))));
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

// The first stage that uses each state; 0 if none does.
IdVector<StateId, int> owners_of_states(const Graph& g, const Readers& readers,
                                        const IdVector<NodeId, int>& stage) {
  IdVector<StateId, std::set<int>> users(g.states().size());
  std::set<StateId> assigned;
  for (const NodeId n : g.nodes().ids()) {
    const Node& node = g.node(n);
    if (const auto* assign = as<AssignOp>(node)) {
      assigned.insert(assign->state);
      users[assign->state].insert(stage[n]);
    } else if (const auto* read = as<ReadOp>(node)) {
      for (const NodeId r : readers[node.outputs[0]]) users[read->state].insert(stage[r]);
    }
  }
  IdVector<StateId, int> owners(g.states().size(), 0);
  for (const StateId s : g.states().ids()) {
    if (!users[s].empty()) owners[s] = *users[s].begin();
    if (users[s].size() > 1 && assigned.contains(s))
      throw Error(fmt::format(
          "impossible cut: state '{}', which forward assigns, is used on stages {}; only a state that forward "
          "does not change can be used on several: cut elsewhere, so that its users stay together",
          g.state(s).path, fmt::join(users[s], " and ")));
  }
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

std::vector<std::string> balanced_cuts(const Graph& graph, int stages) {
  if (stages <= 1) return {};
  const auto wanted = static_cast<std::size_t>(stages);
  Candidates list = modules(graph, 1);
  for (int depth = 2; list.size() < wanted && depth < 8; ++depth) list = modules(graph, depth);
  // A module with nodes of its own after its children ("block" after "block.first") cannot begin a stage.
  const Candidates all = list;
  list = joined(all, [&](const Candidate& m) {
    return std::none_of(all.data(), find(all, m.name),
                        [&](const auto& s) { return in_module(s.name, m.name); });
  });
  // A module without state can be missing in evaluation, as dropout is.
  if (Candidates lasting = joined(list, [](const Candidate& m) { return m.has_state; });
      lasting.size() >= wanted)
    list = std::move(lasting);
  if (list.size() < wanted)
    throw Error(fmt::format("impossible cut: {} stages, but only {} can begin one: {}", stages,
                            counted(std::ssize(list), "module"), names_of(list)));
  double total = 0;
  for (const auto& m : list) total += m.flops;
  std::vector<std::string> cuts;
  double before = 0;
  for (std::size_t i = 1; i < list.size() && cuts.size() + 1 < wanted; ++i) {
    before += list[i - 1].flops;
    const auto share = static_cast<double>(cuts.size() + 1) / stages * total;
    const std::size_t left = list.size() - i;  // modules that can still begin a stage
    const std::size_t needed = wanted - 1 - cuts.size();
    if (before + list[i].flops / 2 >= share || left == needed) cuts.push_back(list[i].name);
  }
  return cuts;
}

}  // namespace tandem::engine
