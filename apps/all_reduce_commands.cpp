#include "all_reduce_commands.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/all_reduce_profile.h>
#include <tandem/dist/backward_program.h>

#include "decimal.h"
#include "output_file.h"
#include "shipped_profiles.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;
constexpr int kMostNodes = 1'000'000, kNodes = 8, kColumns = 96;
// Older versions did not save from which numbers of threads a run chose.
const std::vector<int> kOlderCommThreads{1, 2, 4, 8, 16, 32, 64};

std::vector<int> whole_numbers(const std::string& flag, const std::string& list, int most) {
  std::vector<int> numbers;
  try {
    for (const auto n : decimals<std::int64_t>(list)) {
      if (n < 1 || n > most) throw CLI::ValidationError(fmt::format("{} is not from 1 to {}", n, most));
      numbers.push_back(static_cast<int>(n));
    }
  } catch (const CLI::ValidationError& e) {
    throw Error(fmt::format("{}: {}", flag, e.what()));
  }
  return numbers;
}

int groups_of(const std::string& text) {
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  if (text == "unlimited") return kNoLimit;
  const auto numbers = whole_numbers("--groups", text, kNoLimit);
  if (numbers.size() != 1) throw Error(fmt::format("--groups '{}': write one number, or unlimited", text));
  return numbers[0];
}

// Those of the run that measured the profile, of the table, or of LIBRA's evaluation; with a warning, without
// those that have no rates.
std::vector<int> default_allocations(const AllReduceProfile& profile) {
  const bool is_of_run = profile.ranks > 0;
  std::vector<int> wanted = profile.comm_threads;
  if (wanted.empty()) wanted = profile.contention.known_threads();
  if (wanted.empty()) wanted = is_of_run ? kOlderCommThreads : kLibraAllocations;
  std::vector<std::string> warnings;
  const std::vector<int> allocations = profile.contention.choices(wanted, warnings);
  if (allocations.empty()) throw Error(warnings.at(0));
  for (const std::string& warning : warnings) fmt::print(stderr, "warning: {}\n", warning);
  return allocations;
}

// All options as the planner takes them.
class Request {
 public:
  explicit Request(const AllReduceRequest& o)
      : profile(profile_named(o.profile)), nodes{profile.ranks > 0 ? profile.ranks : kNodes} {
    if (!o.nodes.empty()) nodes = whole_numbers("--nodes", o.nodes, kMostNodes);
    for (const std::string& name : parts_of(o.policies)) policies.push_back(&all_reduce_policy(name));
    allocations_ = o.allocations.empty() ? default_allocations(profile)
                                         : whole_numbers("--allocations", o.allocations, 1'000'000);
    limits_.groups = groups_of(o.groups);
    limits_.chunks = o.chunks;
  }

  AllReduceProblem problem(int ranks) const {
    AllReduceProblem problem = problem_of(profile, ranks, allocations_);
    problem.limits = limits_;
    return problem;
  }

  AllReduceProfile profile;
  std::vector<const AllReducePolicy*> policies;
  std::vector<int> nodes;

 private:
  std::vector<int> allocations_;
  LibraLimits limits_;
};

double bytes_of(const AllReduceProfile& profile, const AllReduceGroup& group) {
  double bytes = 0;
  for (int l = group.first_layer; l <= group.last_layer; ++l)
    bytes += profile.layers[static_cast<std::size_t>(l)].gradient_bytes;
  return bytes;
}

AllReducePlan plan_of(const AllReducePolicy& policy, const AllReduceProblem& problem) {
  AllReducePlan plan = policy.plan(problem);
  plan.policy = policy.name;
  return plan;
}

void warn_of_violations(const AllReduceProblem& problem) {
  for (const std::string& line : violated_assumptions(problem))
    fmt::print(stderr, "warning: {}: LIBRA assumes that this is not so; compare with mg-opt\n", line);
}

ordered_json json_of(const AllReducePlan& plan, const AllReduceProfile& profile) {
  ordered_json groups = ordered_json::array();
  for (const AllReduceGroup& g : plan.groups)
    groups.push_back({{"first_layer", g.first_layer},
                      {"last_layer", g.last_layer},
                      {"bytes", bytes_of(profile, g)},
                      {"threads", g.rates.threads}});
  ordered_json predicted{{"backward_ms", plan.predicted.backward_ms},
                         {"compute_ms", plan.predicted.compute_ms},
                         {"residual_communication_ms", plan.predicted.residual_ms},
                         {"dp_ms", nullptr}};
  if (plan.grid_ms) predicted["dp_ms"] = *plan.grid_ms;
  return {{"policy", plan.policy}, {"groups", groups}, {"predicted", predicted}};
}

void print(const AllReducePlan& plan, const AllReduceProfile& profile) {
  fmt::print("{:>5}  {:>11}  {:>12}  {:>7}  {}\n", "group", "layers", "bytes", "threads", "from");
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const AllReduceGroup& g = plan.groups[i];
    fmt::print("{:>5}  {:>11}  {:>12.0f}  {:>7}  {}\n", i, fmt::format("{}…{}", g.first_layer, g.last_layer),
               bytes_of(profile, g), g.rates.threads,
               profile.layers[static_cast<std::size_t>(g.first_layer)].name);
  }
  fmt::print("\nbackward {:.3f} ms: computation {:.3f} ms ({:.3f} alone), then all-reduces {:.3f} ms",
             plan.predicted.backward_ms, plan.predicted.compute_ms, profile.compute_ms(),
             plan.predicted.residual_ms);
  fmt::print("{}\n", plan.grid_ms ? fmt::format("; on the grid {:.3f} ms", *plan.grid_ms) : "");
}

void add_common_options(CLI::App& command, AllReduceRequest& o) {
  command
      .add_option(
          "--profile", o.profile,
          fmt::format("times and bytes of a backward pass: a file (docs/data-parallel.md), or one of\n{}",
                      shipped_names()))
      ->required();
  command.add_option("--groups", o.groups, "LIBRA: most groups, or unlimited");
  command.add_option("--chunks", o.chunks, "LIBRA: parts of the computation at whose edges it looks")
      ->check(CLI::Range(1, 8'000'000));
  command.add_option("--allocations", o.allocations,
                     "LIBRA: numbers of threads to choose from, as 128,256; else those of the run that "
                     "measured the profile, of its table, or the powers of two from 128 to 4096");
  command.add_flag("--json", o.json, "print JSON");
}

std::string policy_help() {
  std::string text;
  for (const AllReducePolicy& policy : all_reduce_policies())
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", policy.name, policy.help);
  return text;
}

std::string nodes_help() {
  return fmt::format("; by default those of the run\nthat measured the profile, or else {}", kNodes);
}

}  // namespace

void add_plan_options(CLI::App& command, AllReduceRequest& o) {
  add_common_options(command, o);
  o.policies = "libra";
  command.add_option("--policy", o.policies, policy_help());
  command.add_option("--nodes", o.nodes, "ranks, on a ring" + nodes_help());
}

void add_simulation_options(CLI::App& command, AllReduceRequest& o) {
  add_common_options(command, o);
  for (const AllReducePolicy& policy : all_reduce_policies())
    o.policies += fmt::format("{}{}", o.policies.empty() ? "" : ",", policy.name);
  command.add_option("--policy", o.policies, "one or more, as se,libra\n" + policy_help());
  command.add_option("--nodes", o.nodes, "ranks, on a ring: one number or more, as 16,64" + nodes_help());
  command.add_option("--trace", o.trace,
                     "write the timeline here, for ui.perfetto.dev; of one policy on one number of nodes");
}

void plan_all_reduces(const AllReduceRequest& o) {
  const Request request(o);
  if (request.policies.size() != 1 || request.nodes.size() != 1)
    throw Error("a plan is of one --policy on one number of --nodes");
  const AllReduceProblem problem = request.problem(request.nodes[0]);
  warn_of_violations(problem);
  const AllReducePlan plan = plan_of(*request.policies[0], problem);
  if (o.json)
    fmt::print("{}\n", json_of(plan, request.profile).dump(2));
  else
    print(plan, request.profile);
}

void simulate_all_reduces(const AllReduceRequest& o) {
  require_replaceable("--trace", o.trace, "trace");
  const Request request(o);
  const bool one = request.policies.size() == 1 && request.nodes.size() == 1;
  if (!o.trace.empty() && !one) throw Error("--trace: a trace is of one --policy on one number of --nodes");
  const AllReduceProfile& profile = request.profile;
  const double alone_ms = profile.forward_ms + profile.compute_ms();
  ordered_json results = ordered_json::array();
  std::string drawings;
  if (!o.json)
    fmt::print("{:<8}  {:>6}  {:>12}  {:>12}  {:>10}\n", "policy", "nodes", "backward ms", "iteration ms",
               "throughput");
  for (const int nodes : request.nodes) {
    const AllReduceProblem problem = request.problem(nodes);
    warn_of_violations(problem);
    for (const AllReducePolicy* policy : request.policies) {
      const AllReducePlan plan = plan_of(*policy, problem);
      const double backward_ms = plan.predicted.backward_ms, iteration_ms = profile.forward_ms + backward_ms;
      if (o.json) {
        results.push_back({{"policy", plan.policy},
                           {"nodes", nodes},
                           {"backward_ms", backward_ms},
                           {"iteration_ms", iteration_ms},
                           {"normalized_throughput", alone_ms / iteration_ms}});
      } else {
        fmt::print("{:<8}  {:>6}  {:>12.3f}  {:>12.3f}  {:>10.4f}\n", plan.policy, nodes, backward_ms,
                   iteration_ms, alone_ms / iteration_ms);
      }
      if (o.json && o.trace.empty()) continue;
      const auto timeline = engine::simulate_backward(problem.layers, plan.groups, problem.costs).timeline;
      drawings += fmt::format("\n{}, {}\n{}", plan.policy, counted(nodes, "node"),
                              engine::to_text(timeline, kColumns));
      if (!o.trace.empty()) write_json(o.trace, "trace", engine::to_perfetto(timeline));
    }
  }
  if (o.json)
    fmt::print("{}\n", ordered_json{{"results", results}}.dump(2));
  else
    fmt::print("{}", drawings);
}

}  // namespace tandem::apps
