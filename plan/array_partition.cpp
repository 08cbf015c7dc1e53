#include <tandem/plan/array_partition.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/plan/build.h>
#include <tandem/plan/memory_budget.h>

namespace tandem::engine {
namespace {

struct Turn {
  std::int64_t peak_bytes = 0;
  double ms = 0;
  std::string why_not{};
  std::int64_t smallest = 0;  // as in PartitionVerdict
};

Division division_of(const Strategy& s) {
  return s.memory_plan.empty() ? Division::pairs_or_alone : memory_policy(s.memory_plan).division;
}

Turn judge(const Graph& forward, const Strategy& strategy) try {
  const Program program = build(forward, strategy);
  return {planned_peak(program), simulated_batch_seconds(program) * kMsPerSecond};
} catch (const BudgetTooSmall& e) {
  return {.why_not = e.what(), .smallest = e.smallest};
} catch (const Error& e) {
  return {.why_not = e.what()};
}

// Arrays of k models, and one of the rest.
std::vector<int> arrays_of(int k, int models) {
  std::vector<int> arrays(static_cast<std::size_t>(models / k), k);
  if (models % k > 0) arrays.push_back(models % k);
  return arrays;
}

}  // namespace

std::string to_string(const ArrayPartition& partition) {
  std::vector<std::string> turns;
  for (const auto& turn : partition) turns.push_back(fmt::format("({})", fmt::join(turn, ", ")));
  return fmt::format("{}", fmt::join(turns, " "));
}

std::vector<ArrayPartition> partitions_of(int models) {
  std::vector<ArrayPartition> all;
  for (int k = models / 2; k >= 1; --k) {
    const int pairs = models / (2 * k), rest = models - 2 * k * pairs;
    ArrayPartition p(static_cast<std::size_t>(pairs), {k, k});
    if (rest == 1) p.back()[0] = k + 1;
    if (rest >= 2) p.push_back({(rest + 1) / 2, rest / 2});
    all.push_back(std::move(p));
  }
  all.push_back({{models}});
  return all;
}

std::vector<ArrayPartition> partitions_without_pairs(int models) {
  std::vector<ArrayPartition> all;
  for (int k = models; k >= 1; --k) all.push_back({arrays_of(k, models)});
  return all;
}

std::vector<ArrayPartition> partitions_alone(int models) {
  std::vector<ArrayPartition> all;
  for (int k = (models + 1) / 2; k >= 1 && k < models; --k) {
    ArrayPartition& turns = all.emplace_back();
    for (const int array : arrays_of(k, models)) turns.push_back({array});
  }
  return all;
}

std::vector<ArrayPartition> partitions_of(const Strategy& s) {
  const Division division = division_of(s);
  if (division == Division::in_turn) return partitions_without_pairs(s.models);
  std::vector<ArrayPartition> all = partitions_of(s.models);
  if (division == Division::pairs_or_alone)
    std::ranges::move(partitions_alone(s.models), std::back_inserter(all));
  return all;
}

Strategy of_turn(Strategy strategy, const std::vector<int>& turn, int first) {
  strategy.models = std::accumulate(turn.begin(), turn.end(), 0);
  strategy.arrays = turn;
  if (!strategy.each.empty()) {
    const auto begin = strategy.each.begin() + first;
    strategy.each = {begin, begin + strategy.models};
  }
  strategy.array_order = division_of(strategy) == Division::in_turn ? ArrayOrder::in_turn : ArrayOrder::ring;
  strategy.array_lanes = 1;
  return strategy;
}

std::vector<PartitionVerdict> judge_partitions(const Graph& forward, const Strategy& strategy) {
  const bool are_alike = strategy.each.empty();  // else models can keep different states
  std::map<std::pair<int, std::vector<int>>, Turn> turns;
  std::vector<PartitionVerdict> verdicts;
  for (ArrayPartition& partition : partitions_of(strategy)) {
    PartitionVerdict verdict{std::move(partition)};
    bool memory_would_do = true;
    int first = 0;
    for (const auto& arrays : verdict.partition) {
      const auto [turn, fresh] = turns.try_emplace({are_alike ? 0 : first, arrays});
      if (fresh) turn->second = judge(forward, of_turn(strategy, arrays, first));
      first += std::accumulate(arrays.begin(), arrays.end(), 0);
      verdict.peak_bytes = std::max(verdict.peak_bytes, turn->second.peak_bytes);
      verdict.ms += turn->second.ms;
      if (verdict.why_not.empty()) verdict.why_not = turn->second.why_not;
      if (!turn->second.why_not.empty() && turn->second.smallest == 0) memory_would_do = false;
      verdict.smallest = std::max(verdict.smallest, turn->second.smallest);
    }
    if (!memory_would_do) verdict.smallest = 0;
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

const PartitionVerdict& shortest(const std::vector<PartitionVerdict>& verdicts) {
  const PartitionVerdict* best = nullptr;
  for (const PartitionVerdict& v : verdicts)
    if (v.why_not.empty() && (!best || v.ms < best->ms)) best = &v;
  if (best) return *best;
  const PartitionVerdict* least = nullptr;
  for (const PartitionVerdict& v : verdicts)
    if (v.smallest > 0 && (!least || v.smallest < least->smallest)) least = &v;
  if (least)
    throw BudgetTooSmall(
        fmt::format(
            "the memory budget is too small for each of the {} of the models: the smallest budget that "
            "works is {}, for {}. Use smaller batches, or fewer models",
            counted(std::ssize(verdicts), "partition"), enough_bytes(least->smallest), to_string(least->partition)),
        least->smallest);
  throw Error(fmt::format("no partition of the models is possible: {}", verdicts.at(0).why_not));
}

}  // namespace tandem::engine
