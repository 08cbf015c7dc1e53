#include <tandem/memory/memory_problem.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>
#include <tandem/memory/memory_decisions.h>

namespace tandem::engine {
namespace {

constexpr double kMostMs = 1e10, kLeastRate = 1e-3;  // bytes per ms
constexpr std::int64_t kMostBytes = 1'000'000'000'000;
constexpr std::size_t kMostGraphs = 100, kMostNodes = 200'000;  // nodes of all graphs
const std::vector<std::string> kKinds{"parameter", "gradient", "input", "intermediate", "output"};
const std::vector<std::string> kPhases{"forward", "backward", "update"};

class Reader {
 public:
  explicit Reader(const std::string& file) : what_(fmt::format("problem '{}'", file)) {
    const JsonInput j = JsonInput::parse(what_, read_text("problem", file));
    j.require_keys({"graphs", "values", "link", "static_bytes", "lists"});
    const std::vector<JsonInput> graphs = j["graphs"].required().items();
    if (graphs.empty() || graphs.size() > kMostGraphs)
      refuse("\"graphs\" has {}; there must be 1 to {}", graphs.size(), kMostGraphs);
    if (j["values"].present())  // of all graphs
      for (const JsonInput& value : j["values"].items()) add_value(value);
    for (const JsonInput& graph : graphs)
      if (!j["values"].present())
        for (const JsonInput& value : graph["values"].required().items()) add_value(value);
      else if (graph["values"].present())
        refuse("\"values\" stands in a graph and beside the graphs: leave out one of them");
    for (const JsonInput& graph : graphs) add_graph(graph);
    const JsonInput link = j["link"].required();
    link.require_keys({"bytes_per_ms", "duplex"});
    problem_.link = {link["bytes_per_ms"].required().number(0, 0, 1e15), link["duplex"].flag(true)};
    if (problem_.link.bytes_per_ms > 0 && problem_.link.bytes_per_ms < kLeastRate)
      refuse("\"bytes_per_ms\" is {:g}; it must be 0, for no link, or at least {:g}",
             problem_.link.bytes_per_ms, kLeastRate);
    problem_.static_bytes = j["static_bytes"].required().integer<std::int64_t>(0, 0, kMostBytes);
    check_values();
    read_lists(j["lists"]);
  }
  MemoryProblem take() { return std::move(problem_); }

 private:
  template <class... Args> [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    throw Error(fmt::format("{}: {}", what_, fmt::format(text, std::forward<Args>(args)...)));
  }

  void add_value(const JsonInput& j) {
    j.require_keys({"id", "bytes", "kind"});
    const MemoryValue value{j["id"].required().integer<std::int64_t>(0),
                            j["bytes"].required().integer<std::int64_t>(0, 0, kMostBytes),
                            static_cast<MemoryValue::Kind>(j["kind"].required().one_of(kKinds))};
    if (!places_.emplace(value.id, static_cast<int>(problem_.values.size())).second)
      refuse("\"values\" has the id {} twice", value.id);
    problem_.values.push_back(value);
  }

  std::vector<int> places_of(const JsonInput& ids, const std::string& where) const {
    std::vector<int> places;
    for (const JsonInput& id : ids.items()) {
      const auto found = places_.find(id.integer<std::int64_t>(0));
      if (found == places_.end())
        refuse("{} names the value {}, which \"values\" has not", where, id.integer<std::int64_t>(0));
      places.push_back(found->second);
    }
    return places;
  }

  void read_lists(const JsonInput& j) {
    if (!j.present()) return;
    j.require_keys({"swap", "recompute"});
    problem_.lists = {places_of(j["swap"], "\"lists\""), places_of(j["recompute"], "\"lists\"")};
    const std::vector<int> candidates = candidates_of(problem_);
    std::set<int> left(candidates.begin(), candidates.end());
    for (const auto* list : {&problem_.lists.swap, &problem_.lists.recompute}) {
      for (const int v : *list) {
        if (!contains(candidates, v))
          refuse("\"lists\" names value {}, which is no intermediate value that forward makes for backward",
                 id(v));
        else if (left.erase(v) == 0)
          refuse("\"lists\" names value {} twice", id(v));
      }
    }
  }

  void add_graph(const JsonInput& j) {
    j.require_keys({"name", "nodes", "values"});
    MemoryGraph graph{j["name"].required().text(), {}};
    for (const JsonInput& node : j["nodes"].required().items()) {
      node.require_keys({"name", "phase", "run_ms", "workspace_bytes", "inputs", "outputs"});
      const std::string name = node["name"].required().text(), where = fmt::format("node '{}'", name);
      graph.nodes.push_back({name, static_cast<Phase>(node["phase"].required().one_of(kPhases)),
                             node["run_ms"].required().number(0, 0, kMostMs),
                             node["workspace_bytes"].integer<std::int64_t>(0, 0, kMostBytes),
                             places_of(node["inputs"].required(), where),
                             places_of(node["outputs"].required(), where)});
    }
    if (graph.nodes.empty()) refuse("graph '{}' has no nodes", graph.name);
    nodes_ += graph.nodes.size();
    if (nodes_ > kMostNodes) refuse("the graphs have more than {} nodes", kMostNodes);
    problem_.graphs.push_back(std::move(graph));
  }

  // Every value is made once, before it is read, and belongs to one graph; parameters and inputs are never
  // made. In a ring forward comes first.
  void check_values() const {
    enum { kUnknown = -1 };
    std::vector<int> graph_of(problem_.values.size(), kUnknown);
    std::vector<bool> made(problem_.values.size()), read_in_backward(problem_.values.size());
    const auto is_given = [&](int v) {
      const auto kind = problem_.values[static_cast<std::size_t>(v)].kind;
      return kind == MemoryValue::Kind::parameter || kind == MemoryValue::Kind::input;
    };
    for (int g = 0; g < std::ssize(problem_.graphs); ++g) {
      const MemoryGraph& graph = problem_.graphs[static_cast<std::size_t>(g)];
      bool in_forward = true;
      const auto use = [&](int v, const MemoryNode& node) {
        int& of = graph_of[static_cast<std::size_t>(v)];
        if (of != kUnknown && of != g)
          refuse("value {} is of graph '{}', and node '{}' of graph '{}' uses it", id(v),
                 problem_.graphs[static_cast<std::size_t>(of)].name, node.name, graph.name);
        of = g;
      };
      for (const MemoryNode& node : graph.nodes) {
        if (node.phase == Phase::forward && !in_forward && problem_.is_ring())
          refuse("forward node '{}' of graph '{}' comes after nodes of backward or update", node.name,
                 graph.name);
        in_forward = node.phase == Phase::forward;
        for (const int v : node.inputs) {
          use(v, node);
          if (!is_given(v) && !made[static_cast<std::size_t>(v)])
            refuse("node '{}' reads value {} before a node makes it", node.name, id(v));
          if (node.phase != Phase::forward)
            read_in_backward[static_cast<std::size_t>(v)] = true;
          else if (!is_given(v) && read_in_backward[static_cast<std::size_t>(v)])
            refuse("forward node '{}' reads value {} after nodes of backward or update", node.name, id(v));
        }
        for (const int v : node.outputs) {
          use(v, node);
          if (is_given(v)) refuse("node '{}' makes value {}, a parameter or input", node.name, id(v));
          if (made[static_cast<std::size_t>(v)])
            refuse("two nodes make value {}, or one makes it twice", id(v));
          made[static_cast<std::size_t>(v)] = true;
        }
      }
    }
    if (problem_.is_ring())
      for (const MemoryGraph& graph : problem_.graphs)
        if (graph.nodes.front().phase != Phase::forward || graph.nodes.back().phase == Phase::forward)
          refuse("graph '{}' of a ring must have nodes of forward and of backward", graph.name);
    for (int v = 0; v < std::ssize(made); ++v)
      if (!is_given(v) && !made[static_cast<std::size_t>(v)]) refuse("no node makes value {}", id(v));
  }
  std::int64_t id(int v) const { return problem_.values[static_cast<std::size_t>(v)].id; }

  std::string what_;
  MemoryProblem problem_{};
  std::size_t nodes_ = 0;
  std::map<std::int64_t, int> places_;  // by id
};

// The graph whose nodes use a value; of one that none uses, the first.
std::vector<int> graphs_of_values(const MemoryProblem& problem) {
  std::vector<int> graph_of(problem.values.size(), 0);
  for (int g = 0; g < std::ssize(problem.graphs); ++g)
    for (const MemoryNode& n : problem.graphs[static_cast<std::size_t>(g)].nodes)
      for (const auto* used : {&n.inputs, &n.outputs})
        for (const int v : *used) graph_of[static_cast<std::size_t>(v)] = g;
  return graph_of;
}

}  // namespace

MemoryProblem read_memory_problem(const std::string& file) { return Reader(file).take(); }

std::string to_json(const MemoryProblem& problem) {
  using nlohmann::ordered_json;
  const auto ids = [&](const std::vector<int>& values) {
    ordered_json list = ordered_json::array();
    for (const int v : values) list.push_back(problem.values[static_cast<std::size_t>(v)].id);
    return list;
  };
  ordered_json j{{"graphs", ordered_json::array()}};
  const std::vector<int> graph_of = graphs_of_values(problem);
  for (const MemoryGraph& graph : problem.graphs) {
    ordered_json nodes = ordered_json::array();
    for (const MemoryNode& n : graph.nodes)
      nodes.push_back({{"name", n.name},
                       {"phase", kPhases[static_cast<std::size_t>(n.phase)]},
                       {"run_ms", n.run_ms},
                       {"workspace_bytes", n.workspace_bytes},
                       {"inputs", ids(n.inputs)},
                       {"outputs", ids(n.outputs)}});
    j["graphs"].push_back(
        {{"name", graph.name}, {"nodes", std::move(nodes)}, {"values", ordered_json::array()}});
  }
  for (std::size_t i = 0; i < problem.values.size(); ++i) {
    const MemoryValue& v = problem.values[i];
    j["graphs"][static_cast<std::size_t>(graph_of[i])]["values"].push_back(
        {{"id", v.id}, {"bytes", v.bytes}, {"kind", kKinds[static_cast<std::size_t>(v.kind)]}});
  }
  j["link"] = {{"bytes_per_ms", problem.link.bytes_per_ms}, {"duplex", problem.link.duplex}};
  j["static_bytes"] = problem.static_bytes;
  const auto& [swap, recompute] = problem.lists;
  if (!swap.empty() || !recompute.empty()) j["lists"] = {{"swap", ids(swap)}, {"recompute", ids(recompute)}};
  return j.dump(1) + "\n";
}

std::string checksum_of(const MemoryProblem& problem) {
  MemoryProblem without_times = problem;
  without_times.link = {};
  without_times.lists = {};
  for (MemoryGraph& graph : without_times.graphs)
    for (MemoryNode& node : graph.nodes) node.run_ms = 0;
  return checksum_of(std::string_view(to_json(without_times)));
}

}  // namespace tandem::engine
