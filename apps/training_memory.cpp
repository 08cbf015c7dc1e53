#include "training_memory.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/engine.h>
#include <tandem/plan/array_partition.h>
#include <tandem/plan/plan_file.h>
#include <tandem/train/active_models.h>

#include "log.h"
#include "memory_report.h"
#include "simulation.h"
#include "sweep.h"

namespace tandem::apps {
using namespace engine;
namespace {

// It is measured within the budget, with a plan by estimated times. Models are measured in arrays of each
// size that they have, or that a partition would have; those that do not fit are left out.
Profile measured_for_memory(const TrainOptions& o, const Strategy& strategy, const Graph& forward,
                            const CifarData& data) {
  if (strategy.models == 1) return measured_profile(o, strategy, forward, build(forward, strategy), data);
  std::set<int> sizes(strategy.arrays.begin(), strategy.arrays.end());
  if (sizes.empty())
    for (const ArrayPartition& partition : partitions_of(strategy))
      for (const auto& turn : partition) sizes.insert(turn.begin(), turn.end());
  Profile profile;
  for (const int models : sizes) {
    const TrainOptions some = with_first_models(o, models);
    const Strategy one = of_turn(strategy, {models});
    try {
      const Program program = build(forward, one);
      profile.add(measured_profile(some, one, forward, program, data));
    } catch (const BudgetTooSmall& e) {
      log_debug(fmt::format("an array of {} does not fit: {}", counted(models, "model"), e.what()));
    }
  }
  return profile;
}

// Says what the swaps of the first turn cost the computation beside them.
void say_copy_slowdown(const TrainOptions& o, const Strategy& strategy, const std::vector<int>& turns,
                       const Graph& forward, const CifarData& data) {
  const Strategy first = strategy_of_turn(strategy, turns, 0);
  const double slowdown =
      measured_copy_slowdown(with_first_models(o, first.models), build(forward, first), data);
  constexpr double kNoise = 1.05;
  if (slowdown == 1) return;  // there are no copies
  log_info("computation beside these copies takes " +
           (slowdown < kNoise
                ? "as long as alone"
                : fmt::format("{:.2f} times as long as alone, which the prediction leaves out", slowdown)));
}

// Divides several models into arrays and turns: as is fastest within the budget. Returns the turns.
std::vector<int> divide(const TrainOptions& o, Strategy& strategy, const Graph& forward, bool says) {
  std::vector<PartitionVerdict> verdicts = judge_partitions(forward, strategy);
  if (says) say_partitions(verdicts, o.simulate);
  const bool takes_turns =
      strategy.ranks() == 1 && o.measure_prediction.empty() && (o.on_nan == "stop" || o.on_nan == "mask");
  if (!takes_turns) std::erase_if(verdicts, [](const auto& v) { return v.partition.size() > 1; });
  const ArrayPartition best = shortest(verdicts).partition;
  std::vector<int> arrays, turns;
  for (const std::vector<int>& turn : best) {
    arrays.insert(arrays.end(), turn.begin(), turn.end());
    turns.push_back(std::accumulate(turn.begin(), turn.end(), 0));
  }
  if (turns.size() == 1) turns.clear();
  if (says)
    log_info(
        turns.empty()
            ? fmt::format("{} in arrays of {}", counted(strategy.models, "model"), fmt::join(arrays, ", "))
            : fmt::format("{} in turns of arrays: {}", counted(strategy.models, "model"), to_string(best)));
  strategy = of_turn(strategy, arrays);
  return turns;
}

}  // namespace

namespace {

// Turns of equally many models can have the same plan.
bool contains(const std::vector<DevicePlan>& plans, const DevicePlan& plan) {
  const auto is_same = [&](const DevicePlan& other) {
    return checksum_of(other.step.problem) == checksum_of(plan.step.problem);
  };
  return std::ranges::any_of(plans, is_same);
}

// Models with SGD and models with Adam keep different states, so they need arrays of their own. Returns how
// many models in a row are of one kind.
std::vector<int> models_of_one_kind(const TrainOptions& o) {
  std::vector<int> counts;
  bool was_sgd = false;
  for (int m = 0; m < o.models; ++m) {
    const bool is_sgd = options_of_model(o, m).optimizer == "sgd";
    if (counts.empty() || is_sgd != was_sgd) counts.push_back(0);
    ++counts.back();
    was_sgd = is_sgd;
  }
  return counts;
}

}  // namespace

void put_side_by_side(TrainOptions& o, const Graph& forward, bool says) {
  constexpr double kLarge = 3e8;                // operations of a forward
  constexpr std::int64_t kManyBytes = 2 << 20;  // of weights
  if (o.models == 1 || !o.arrays.empty() || o.evaluate) return;
  const std::vector<int> kinds = models_of_one_kind(o);
  if (kinds.size() > 1) {
    o.arrays = kinds;
    if (says)
      log_info(fmt::format("models with SGD and models with Adam are in arrays of their own: {}",
                           fmt::join(kinds, ", ")));
  }
  const int threads = o.threads > 0 ? o.threads : default_threads();
  if (threads == 1 || !o.turns.empty() || o.ranks * o.stages * o.microbatches > 1 ||
      !o.memory_budget.empty() || !o.memory_plan.empty() || !o.plan.empty())
    return;
  double flops = 0;
  for (const Node& n : forward.nodes())
    flops += n.op->cost(forward.types(n.inputs), forward.types(n.outputs)).flops;
  std::int64_t bytes = 0;
  for (const State& s : forward.states()) bytes += s.trained ? s.type.bytes() : 0;
  if (flops >= kLarge || bytes >= kManyBytes)
    o.arrays.assign(static_cast<std::size_t>(o.models), 1);
  else if (kinds.size() == 1)
    for (int a = 0, arrays = std::min(o.models, threads); a < arrays; ++a)
      o.arrays.push_back((o.models + a) / arrays);
  o.array_lanes = std::min(static_cast<int>(std::ssize(o.arrays)), threads);
  if (o.threads > 0) o.threads = std::max(1, o.threads / o.array_lanes);
}

TrainOptions with_first_models(TrainOptions o, int models) {
  const auto count = static_cast<std::size_t>(models);
  o.models = models;
  o.seed.resize(count);
  o.lr.resize(count);
  if (!o.swept.empty()) o.swept.resize(count);
  return o;
}

Strategy strategy_of_turn(const Strategy& strategy, const std::vector<int>& turns, int turn) {
  ActiveModels models(strategy.models, turns);
  models.enter(turn);
  return models.in_session(strategy);
}

TrainingMemory plan_memory(const TrainOptions& o, Strategy& strategy, const Graph& forward,
                           const CifarData& data, const std::optional<Profile>& known,
                           const RankTalk& ranks) {
  const bool repeats = !strategy.known_memory_plans.empty();
  TrainingMemory memory{{}, repeats && o.turns.empty() ? read_turns(o.plan) : o.turns, true};
  const auto plan = [&] {
    const int turns = std::max(1, static_cast<int>(std::ssize(memory.turns)));
    for (int turn = 0; turn < turns; ++turn) {
      std::vector<DevicePlan> made = memory_plans(forward, strategy_of_turn(strategy, memory.turns, turn));
      memory.are_of_all_turns = memory.are_of_all_turns && !made.empty();
      for (DevicePlan& device : made)
        if (turns == 1 || !contains(memory.plans, device)) memory.plans.push_back(std::move(device));
    }
  };
  if (repeats) {
    plan();
    if (ranks.is_root()) log_info("repeats the memory plan of --plan");
    return memory;
  }
  if (strategy.memory_budget == 0 && strategy.memory_plan.empty()) return memory;
  const bool divides = strategy.models > 1 && strategy.arrays.empty() && o.turns.empty();
  if (!divides) plan();
  if (!divides && memory.plans.empty()) return memory;
  std::string measured;
  const std::string why_not = ranks.on_root([&] {
    if (!known) measured = measured_for_memory(o, strategy, forward, data).to_json();
  });
  if (!why_not.empty()) throw Error(why_not);
  strategy.profile = std::make_shared<const Profile>(
      known ? *known : Profile::parse("the measured profile", ranks.from_root(measured)));
  if (divides) memory.turns = divide(o, strategy, forward, ranks.is_root());
  memory = {{}, memory.turns, true};
  plan();
  if (ranks.is_root()) say_memory_plans(memory.plans, strategy);
  if (!known && strategy.copy_link.bytes_per_ms > 0) {
    const std::string failed =
        ranks.on_root([&] { say_copy_slowdown(o, strategy, memory.turns, forward, data); });
    if (!failed.empty()) throw Error(failed);
  }
  if (ranks.is_root() && o.explain) explain_memory_plans(memory.plans, strategy);
  return memory;
}

}  // namespace tandem::apps
