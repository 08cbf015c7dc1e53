#include "training_memory.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/engine.h>
#include <tandem/plan/array_partition.h>

#include "log.h"
#include "memory_report.h"
#include "simulation.h"

namespace tandem::apps {
using namespace engine;
namespace {

// It is measured within the budget, with a plan by estimated times. Models are measured in arrays of each
// size that a partition has; those that do not fit are left out.
Profile measured_for_memory(const TrainOptions& o, const Strategy& strategy, const Graph& forward,
                            const CifarData& data) {
  if (strategy.models == 1) return measured_profile(o, strategy, forward, build(forward, strategy), data);
  std::set<int> sizes;
  for (const ArrayPartition& partition : partitions_of(strategy))
    for (const auto& turn : partition) sizes.insert(turn.begin(), turn.end());
  Profile profile;
  for (const int models : sizes) {
    TrainOptions some = o;
    some.models = models;
    some.seed.resize(static_cast<std::size_t>(models));
    some.lr.resize(static_cast<std::size_t>(models));
    const Strategy one = of_turn(strategy, {models});
    try {
      const Program program = build(forward, one);
      profile.add(measured_profile(some, one, forward, program, data));
    } catch (const Error& e) {
      log_debug(fmt::format("an array of {} does not fit: {}", counted(models, "model"), e.what()));
    }
  }
  return profile;
}

// Divides several models into arrays: as is fastest within the budget.
void divide(Strategy& strategy, const Graph& forward, bool says, bool says_all) {
  std::vector<PartitionVerdict> verdicts = judge_partitions(forward, strategy);
  if (says) say_partitions(verdicts, says_all);
  std::erase_if(verdicts, [](const PartitionVerdict& v) { return v.partition.size() > 1; });
  strategy = of_turn(strategy, shortest(verdicts).partition[0]);
  if (says)
    log_info(fmt::format("{} in arrays of {}", counted(strategy.models, "model"),
                         fmt::join(strategy.arrays, ", ")));
}

}  // namespace

void put_side_by_side(TrainOptions& o, const Graph& forward) {
  constexpr double kLarge = 3e8;                // operations of a forward
  constexpr std::int64_t kManyBytes = 2 << 20;  // of weights
  const int threads = o.threads > 0 ? o.threads : default_threads();
  if (o.models == 1 || threads == 1 || !o.arrays.empty() || o.evaluate ||
      o.ranks * o.stages * o.microbatches > 1 || !o.memory_budget.empty() || !o.memory_plan.empty() ||
      !o.plan.empty())
    return;
  double flops = 0;
  for (const Node& n : forward.nodes())
    flops += n.op->cost(forward.types(n.inputs), forward.types(n.outputs)).flops;
  std::int64_t bytes = 0;
  for (const State& s : forward.states()) bytes += s.trained ? s.type.bytes() : 0;
  o.array_lanes = std::min(o.models, threads);
  const int arrays = flops >= kLarge || bytes >= kManyBytes ? o.models : o.array_lanes;
  for (int a = 0; a < arrays; ++a) o.arrays.push_back((o.models + a) / arrays);
  if (o.threads > 0) o.threads = std::max(1, o.threads / o.array_lanes);
}

std::vector<DevicePlan> plan_memory(const TrainOptions& o, Strategy& strategy, const Graph& forward,
                                    const CifarData& data, const std::optional<Profile>& known,
                                    const RankTalk& ranks) {
  if (!strategy.known_memory_plans.empty()) {
    std::vector<DevicePlan> plans = memory_plans(forward, strategy);
    if (ranks.is_root()) log_info("repeats the memory plan of --plan");
    return plans;
  }
  if (strategy.memory_budget == 0 && strategy.memory_plan.empty()) return {};
  const bool divides = strategy.models > 1 && strategy.arrays.empty();
  if (!divides && memory_plans(forward, strategy).empty()) return {};
  std::string measured;
  const std::string why_not = ranks.on_root([&] {
    if (!known) measured = measured_for_memory(o, strategy, forward, data).to_json();
  });
  if (!why_not.empty()) throw Error(why_not);
  strategy.profile = std::make_shared<const Profile>(
      known ? *known : Profile::parse("the measured profile", ranks.from_root(measured)));
  if (divides) divide(strategy, forward, ranks.is_root(), o.simulate);
  std::vector<DevicePlan> plans = memory_plans(forward, strategy);
  if (ranks.is_root()) say_memory_plans(plans, strategy);
  if (ranks.is_root() && o.explain) explain_memory_plans(plans);
  return plans;
}

}  // namespace tandem::apps
