#include "memory_command.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>
#include <tandem/memory/memory_policies.h>

#include "log.h"
#include "long_work.h"
#include "memory_timeline.h"
#include "output_file.h"
#include "parse_bytes.h"

namespace tandem::apps {
using namespace engine;
namespace {

using nlohmann::ordered_json;

ordered_json ids_of(const MemoryProblem& problem, const std::vector<int>& values) {
  ordered_json ids = ordered_json::array();
  for (const int v : values) ids.push_back(problem.values[static_cast<std::size_t>(v)].id);
  return ids;
}

ordered_json to_json(const MemoryProblem& problem, const MemoryStep& step) {
  if (step.value >= 0) return {name_of(step.kind), problem.values[static_cast<std::size_t>(step.value)].id};
  return {name_of(step.kind), step.graph, step.node};
}

// The values that are copied, or computed again, in the order of the list.
std::vector<int> treated(const MemoryProblem& problem, const MemoryPlan& plan, MemoryStep::Kind kind) {
  std::vector<int> values;
  const auto add = [&](int v) {
    if (std::ranges::find(values, v) == values.end()) values.push_back(v);
  };
  for (const MemoryStep& s : plan.steps) {
    if (s.kind != kind) continue;
    if (s.value >= 0)
      add(s.value);
    else
      for (const int v :
           problem.graphs[static_cast<std::size_t>(s.graph)].nodes[static_cast<std::size_t>(s.node)].outputs)
        add(v);
  }
  return values;
}

ordered_json to_json(const MemoryProblem& problem, std::string_view policy, const MemoryResult& result) {
  const auto& [plan, cost] = result.best;
  ordered_json j{{"policy", policy},
                 {"feasible", result.feasible},
                 {"peak_bytes", cost.peak_bytes},
                 {"time_ms", cost.time_ms},
                 {"stall_ms", cost.stall_ms},
                 {"recompute_ms", cost.recompute_ms},
                 {"swapped", ids_of(problem, treated(problem, plan, MemoryStep::Kind::d2h))},
                 {"recomputed", ids_of(problem, treated(problem, plan, MemoryStep::Kind::recompute))}};
  if (problem.is_ring()) {
    j["resident_at_start"] = ids_of(problem, plan.resident_at_start);
    j["host_at_start"] = ids_of(problem, plan.host_at_start);
  }
  j["program"] = ordered_json::array();
  for (const MemoryStep& step : plan.steps) j["program"].push_back(to_json(problem, step));
  if (result.minimum_bytes) j["minimum_bytes"] = *result.minimum_bytes;
  return j;
}

// Calls `read`, whose errors then name the flag.
template <class Read> auto of_flag(const char* flag, const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", flag, e.what()));
  }
}

void print_row(std::string_view policy, const MemoryResult& result) {
  const MemoryCost& cost = result.best.cost;
  fmt::print("{:<12} {:>8} {:>14} {:>10.6g} {:>9.6g} {:>12.6g}", policy, result.feasible ? "yes" : "no",
             cost.peak_bytes, cost.time_ms, cost.stall_ms, cost.recompute_ms);
  if (result.minimum_bytes) fmt::print("  needs {} bytes", *result.minimum_bytes);
  fmt::print("\n");
}

}  // namespace

void add_memory_plan_options(CLI::App& command, MemoryPlanOptions& o) {
  command.add_option("--graph", o.graph, "JSON file of one graph, or of several in a ring")->required();
  command.add_option("--limit", o.limit, "bytes of the device, as 2GiB")->required();
  command
      .add_option("--policy", o.policies,
                  fmt::format("how to plan, several with commas; of {}, or all",
                              fmt::join(names_of(memory_policies()), ", ")))
      ->delimiter(',')
      ->capture_default_str();
  command.add_flag("--json", o.json, "print JSON, with the plans' instructions");
  command.add_flag("--timeline", o.timeline,
                   "draw each plan: forwards of graph g as digit g, backwards as letters, + what is computed "
                   "again, _ waits, o and i copies to and from the host, * updates");
  command.add_option("--trace", o.trace, "write the timeline of the plan here, for ui.perfetto.dev");
}

void plan_memory(const MemoryPlanOptions& o) {
  std::vector<const MemoryPolicy*> policies;
  for (const std::string& name : o.policies)
    if (name == "all")
      for (const MemoryPolicy& policy : memory_policies()) policies.push_back(&policy);
    else
      policies.push_back(of_flag("--policy", [&] { return &memory_policy(name); }));
  if (o.json && o.timeline) throw Error("--timeline has no effect with --json: leave out one of the two");
  if (!o.trace.empty() && policies.size() > 1)
    throw Error("--trace holds the timeline of one plan: give one --policy");
  require_replaceable("--trace", o.trace, "trace");
  const std::int64_t limit = of_flag("--limit", [&] { return parse_bytes(o.limit); });
  const MemoryProblem problem = of_flag("--graph", [&] { return read_memory_problem(o.graph); });
  ordered_json results = ordered_json::array();
  if (!o.json)
    fmt::print("{:<12} {:>8} {:>14} {:>10} {:>9} {:>12}\n", "policy", "feasible", "peak bytes", "ms",
               "stall ms", "recompute ms");
  constexpr double kSilence = 5;  // seconds
  LongWork work([](const std::string& text) { log_error(text); }, kSilence);
  for (const MemoryPolicy* policy : policies) try {
      work.begin(fmt::format("the plan by {}", policy->name));
      const MemoryResult result = engine::plan_memory(problem, limit, *policy);
      work.end();
      if (o.json)
        results.push_back(to_json(problem, policy->name, result));
      else
        print_row(policy->name, result);
      if (o.timeline) fmt::print("{}", to_text(timeline_of(problem, result.best.plan), 96));
      if (!o.trace.empty()) write_json(o.trace, "trace", to_perfetto(timeline_of(problem, result.best.plan)));
    } catch (const Error& e) {  // as for a graph that is too large for it
      if (policies.size() == 1) throw;
      if (o.json)
        results.push_back({{"policy", policy->name}, {"error", e.what()}});
      else
        fmt::print("{:<12} {}\n", policy->name, e.what());
    }
  if (o.json) fmt::print("{}\n", ordered_json{{"results", results}}.dump(1));
}

}  // namespace tandem::apps
