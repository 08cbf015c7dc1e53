#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// How models are divided: into arrays that train alone or in pairs, which take turns, one after the other.
/// Or, for policies without pairs, into arrays that take turns within each batch.
using ArrayPartition = std::vector<std::vector<int>>;  // sizes of arrays, by turn

/// "(4, 4)", or "(3, 3) (1, 1)".
std::string to_string(const ArrayPartition& partition);

/// Returns the partitions of N models that μ-TWO considers: for k = ⌊N/2⌋ … 1 as many pairs (k, k) as there
/// are, and the rest as one more pair, or one more model of the last pair; then all models in one array.
std::vector<ArrayPartition> partitions_of(int models);
/// Returns those without pairs: arrays of k, and of the rest, for k = N … 1.
std::vector<ArrayPartition> partitions_without_pairs(int models);
/// Returns those of arrays that train alone, one after the other: of k, and of the rest, for k = ⌈N/2⌉ … 1.
std::vector<ArrayPartition> partitions_alone(int models);

/// Returns those that the strategy's memory policy considers (Division in memory/memory_policies.h).
std::vector<ArrayPartition> partitions_of(const Strategy& strategy);

/// What a partition would cost.
struct PartitionVerdict {
  ArrayPartition partition;
  std::int64_t peak_bytes = 0;  ///< planned, of the turn that needs most
  double ms = 0;                ///< predicted, for a batch of all models
  std::string why_not{};        ///< why it is impossible; empty: it is possible
  std::int64_t smallest = 0;    ///< budget with which it is possible; 0: `why_not` is no matter of memory
};

/// Plans each partition of the strategy's models, by its budget, memory plan and profile.
std::vector<PartitionVerdict> judge_partitions(const Graph& forward, const Strategy& strategy);

/// Returns the possible one that takes the least time. Throws Error if there is none, with the smallest
/// budget of all, or if no budget would do, with the reason of the first.
const PartitionVerdict& shortest(const std::vector<PartitionVerdict>& verdicts);

/// Returns the strategy of one turn of a partition, whose first model has the number `first`.
Strategy of_turn(Strategy strategy, const std::vector<int>& turn, int first = 0);

}  // namespace tandem::engine
