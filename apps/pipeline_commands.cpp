#include "pipeline_commands.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/plan/layer_profile.h>
#include <tandem/plan/pipeline_simulation.h>
#include <tandem/plan/plan_file.h>

#include "output_file.h"
#include "parse_bytes.h"

namespace tandem::apps {
using namespace engine;
namespace {

using nlohmann::ordered_json;

PartitionProblem problem_of(const PipelinePlanOptions& o) {
  PartitionProblem problem{.layers = read_layer_profile(o.profile), .schedule = {}, .corun = o.corun};
  if (!o.link.empty()) problem.link = parse_link(o.link);
  if (!o.memory_budget.empty()) problem.memory_budget = static_cast<double>(parse_bytes(o.memory_budget));
  return problem;
}

// With replicas there can be fewer stages than devices: returns the problems of all numbers of stages that
// the schedule takes.
std::vector<PartitionProblem> problems_with_replicas(const PipelinePlanOptions& o,
                                                     const PartitionProblem& problem,
                                                     const TypedSchedule& typed, int devices) {
  std::vector<PartitionProblem> problems;
  std::string refused;  // of the most stages
  for (int stages = 1; stages <= std::min<int>(devices, static_cast<int>(problem.layers.size())); ++stages) {
    try {
      PartitionProblem& p = problems.emplace_back(problem);
      p.schedule = made(typed, stages, o.shape);
      p.spare_devices = devices - stages;
    } catch (const Error& e) {
      problems.pop_back();
      refused = e.what();
    }
  }
  if (problems.empty()) throw Error(refused);
  return problems;
}

double simulated_ms(const PartitionProblem& problem, const Partition& partition) {
  StageProfile profile;
  for (const PartitionedStage& s : partition.stages)
    profile.stages.push_back({.forward_ms = s.forward * kMsPerSecond,
                              .backward_ms = s.backward * kMsPerSecond,
                              .activation_bytes = s.forward_bytes,
                              .weight_bytes = s.weight_bytes,
                              .replicas = s.replicas});
  profile.link = {problem.link.bandwidth / kMsPerSecond, problem.link.latency * kMsPerSecond};
  profile.corun = problem.corun;
  const std::int64_t lag = std::ranges::max(problem.schedule.tasks, {}, &Task::lag).lag;
  return simulate_pipeline(profile, problem.schedule, std::max(kSteadyBatches, 4 * (lag + 2))).period_ms;
}

struct Planned {
  PartitionProblem problem;
  Partition partition;
  double simulated_ms = 0;
};
Planned planned(const PartitionProblem& problem) {
  Partition partition = best_partition(problem);
  const double simulated = simulated_ms(problem, partition);
  return {problem, std::move(partition), simulated};
}

// Returns the best partition of the problem for which the simulator's period is shortest: the cost model
// takes all-reduces for hidden as far as possible. Throws Error if no partition fits the budget, with the
// smallest one that works.
Planned fastest(const std::vector<PartitionProblem>& problems) {
  std::optional<Planned> best;
  for (const PartitionProblem& p : problems) {
    try {
      Planned one = planned(p);
      if (!best || one.simulated_ms < best->simulated_ms) best = std::move(one);
    } catch (const Error&) {  // over the budget
    }
  }
  if (!best) best_partition(*std::ranges::min_element(problems, {}, least_memory_budget));
  return *best;
}

// Sets the schedule of a problem, and returns its best partition.
Planned best_of(const PipelinePlanOptions& o, PartitionProblem problem) {
  const TypedSchedule typed = typed_schedule(o.schedule);
  const int devices = o.stages > 0 ? o.stages : typed.file.devices();
  if (devices == 0)
    throw Error("--stages: give the number of stages, which only a schedule's file says itself");
  check_shape_options(o.shape, {typed}, o.schedule);
  if (!o.replicate) {
    problem.schedule = made(typed, o.stages, o.shape);
    return planned(problem);
  }
  if (o.shape.chunks > 1 || typed.file.devices() < std::ssize(typed.file.stages))
    throw Error("--replicate: stages that share a device have no replicas");
  return fastest(problems_with_replicas(o, problem, typed, devices));
}

bool is_replicated(const Partition& partition) {
  return std::ranges::any_of(partition.stages, [](const PartitionedStage& s) { return s.replicas > 1; });
}

double batch_seconds(const Partition& partition) {
  double seconds = 0;
  for (const PartitionedStage& s : partition.stages) seconds += s.forward + s.backward;
  return seconds;
}

const std::string& name_of(const PartitionProblem& problem, int layer) {
  return problem.layers[static_cast<std::size_t>(layer)].name;
}

void print_json(const Planned& plan) {
  const auto& [problem, partition, simulated] = plan;
  const auto name = [&plan](int layer) { return name_of(plan.problem, layer); };
  ordered_json stages = ordered_json::array();
  for (const PartitionedStage& s : partition.stages)
    stages.push_back({{"first", name(s.first)},
                      {"last", name(s.end - 1)},
                      {"layers", s.end - s.first},
                      {"device", s.device},
                      {"replicas", s.replicas},
                      {"forward_ms", s.forward * kMsPerSecond},
                      {"backward_ms", s.backward * kMsPerSecond},
                      {"unit_ms", s.unit * kMsPerSecond},
                      {"activation_bytes", s.forward_bytes},
                      {"resident_bytes", s.resident_bytes},
                      {"weight_bytes", s.weight_bytes},
                      {"memory_bytes", s.memory_bytes},
                      {"in_flight", s.held},
                      {"weight_versions", s.versions}});
  const ordered_json j{{"cuts", names_of(problem, partition.cuts())},
                       {"stages", stages},
                       {"period_ms", partition.period * kMsPerSecond},
                       {"simulated_ms", simulated},
                       {"speedup", batch_seconds(partition) / partition.period}};
  fmt::print("{}\n", j.dump(2));
}

void print_table(const Planned& plan) {
  const auto& [problem, partition, simulated] = plan;
  const auto name = [&plan](int layer) { return name_of(plan.problem, layer); };
  fmt::print("{:>5}  {:>6}  {:>8}  {:>9}  {:>9}  {:>9}  {:>10}  {:>9}  {:>9}  {:>8}  {}\n", "stage", "device",
             "replicas", "F ms", "B ms", "unit ms", "crossing MB", "memory MB", "in flight", "versions",
             "layers");
  for (std::size_t k = 0; k < partition.stages.size(); ++k) {
    const PartitionedStage& s = partition.stages[k];
    fmt::print(
        "{:>5}  {:>6}  {:>8}  {:>9.3f}  {:>9.3f}  {:>9.3f}  {:>11.3f}  {:>9.3f}  {:>9}  {:>8}  {}: {}\n", k,
        s.device, s.replicas, s.forward * kMsPerSecond, s.backward * kMsPerSecond, s.unit * kMsPerSecond,
        s.forward_bytes / kBytesPerMb, s.memory_bytes / kBytesPerMb, s.held, s.versions, s.end - s.first,
        s.end - s.first == 1 ? name(s.first) : fmt::format("{} … {}", name(s.first), name(s.end - 1)));
  }
  fmt::print("\nperiod {:.3f} ms by the cost model, {:.3f} ms in the simulator; one device takes {:.3f} ms\n",
             partition.period * kMsPerSecond, simulated, batch_seconds(partition) * kMsPerSecond);
  for (const std::string& note : {why_devices_take_turns(problem.schedule), why_uneven(problem, partition)})
    if (!note.empty()) fmt::print("{}\n", note);
  if (const auto cuts = names_of(problem, partition.cuts()); !cuts.empty())
    fmt::print("cuts: {}\n", fmt::join(cuts, ", "));
  if (is_replicated(partition))
    fmt::print(
        "Planned and simulated, not run: a run has equally many replicas of all stages (train_cifar --ranks).\n{}",
        problem.link == LinkModel{}
            ? "Without --link, the all-reduces of replicas and all transfers take no time.\n"
            : "");
}

}  // namespace

void add_pipeline_plan_options(CLI::App& command, PipelinePlanOptions& o) {
  command.add_option("--profile", o.profile, "times and bytes of the layers, as JSON (docs/pipelines.md)")
      ->required();
  command
      .add_option("--stages", o.stages, "stages; with --replicate: devices. A schedule's file says its own")
      ->check(CLI::Range(1, 200));
  command.add_option("--schedule", o.schedule, typed_schedule_help());
  add_shape_options(command, o.shape);
  command.add_option("--link", o.link, "between devices: bandwidth, latency, or both: 1GB/s,50us");
  command.add_option("--memory-budget", o.memory_budget, "limit per device: 64K, 512MB, 1.5GiB");
  command.add_option("--corun", o.corun, "ρ: a forward beside a backward take max(F, B, ρ(F + B))")
      ->check(CLI::Range(0.5, 1.0));
  command.add_flag("--replicate", o.replicate,
                   "stages can have several devices, each with a part of the work");
  command.add_flag("--json", o.json, "print JSON");
  command.add_option("--output", o.output, "write the cuts here, as a file for train_cifar --plan");
}

void plan_pipeline(const PipelinePlanOptions& o) {
  require_replaceable("--output", o.output, "plan");
  const Planned plan = best_of(o, problem_of(o));
  if (o.json)
    print_json(plan);
  else
    print_table(plan);
  if (!o.output.empty())
    write_json(o.output, "plan", plan_with_cuts(names_of(plan.problem, plan.partition.cuts())));
}

}  // namespace tandem::apps
