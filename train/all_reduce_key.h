#pragma once
#include <map>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/dist/all_reduce_costs.h>
#include <tandem/dist/link.h>
#include <tandem/plan/strategy.h>

namespace tandem {

/// What the times of a backward pass and its all-reduces depend on. Times that one run measured hold for
/// another run with an equal key (`difference`).
struct AllReduceKey {
  int ranks = 1;  ///< that reduce gradients together
  /// "threads" or "mpi": what the ranks are; empty: unknown. Times of one say little about the other.
  std::string transport{};
  std::string machines{};  ///< of ranks that are processes: "node1 × 2, node2 × 2"
  int threads = 1;         ///< of a compute lane
  LinkModel link{};
  CollectiveAlgorithm collective = CollectiveAlgorithm::automatic;
  /// What else decides what backward computes, in words: {"micro-batches", "2"}, …; empty: unknown.
  std::map<std::string, std::string> settings{};
  double batch_size = 1;                             ///< samples per rank
  std::vector<std::vector<GradientLayer>> layers{};  ///< names and bytes, by device
};

/// Returns why `saved` says nothing about a run with this `key`, such as "it is of 4 ranks, not 2"; empty if
/// both are equal.
std::string difference(const AllReduceKey& saved, const AllReduceKey& key);

/// Returns the key of a run that trains `forward`, which is of one micro-batch of one replica. `processes`: a
/// Comm of all ranks, if they are processes. Then all must call, and `root` alone gets the machines.
AllReduceKey all_reduce_key(const engine::Graph& forward, const Strategy& strategy, double samples_per_rank,
                            engine::Comm* processes = nullptr, int root = 0);

}  // namespace tandem
