#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/dist/all_reduce_costs.h>
#include <tandem/dist/libra_planner.h>

namespace tandem {

/// What a policy plans for.
struct AllReduceProblem {
  std::vector<GradientLayer> layers;
  AllReduceCosts costs;  ///< its choices are for policies that choose threads
  /// The threads, and what they cost, of an all-reduce of some bytes under all other policies.
  std::function<ThreadRates(double bytes)> baseline;
  LibraLimits limits{};
  // Horovod's settings.
  double cycle_ms = 5;
  double fusion_bytes = 64 << 20;
};

struct AllReducePlan {
  std::string policy;
  std::vector<AllReduceGroup> groups;
  BackwardTimes predicted;
  std::optional<double> grid_ms{};  ///< T(K, L, Z), of policies that search on a grid of chunks
};

/// A way to reduce gradients beside backward: which together, when, and by how many threads. Each plans from
/// times and bytes alone.
struct AllReducePolicy {
  std::string_view name;
  std::string_view help;  ///< one line
  bool needs_times;       ///< false: the groups follow from bytes alone
  AllReducePlan (*plan)(const AllReduceProblem& problem);
};

/// All policies, from the simplest to LIBRA: se, wfbp, ddp, horovod, mg-wfbp, mg-opt, mg-cf, libra-m, libra.
const std::vector<AllReducePolicy>& all_reduce_policies();
/// Throws Error naming those that exist.
const AllReducePolicy& all_reduce_policy(std::string_view name);

/// A number of threads by the bytes of a call.
struct ThreadTable {
  struct Row {
    double most_bytes;
    int threads;
  };
  std::vector<Row> rows{};  ///< by rising bytes
  int threads = 1;          ///< of calls with more bytes
  int at(double bytes) const;
};
/// What NCCL 2.4.8 uses over one network card, on devices with NVLink (its tuning source): 512 threads, and
/// 64, 128 or 256 for messages of up to 512, 1024 or 2048 bytes per rank.
ThreadTable nccl_threads(int ranks);

/// Returns a line for each assumption of LIBRA that the costs violate: computation beside an all-reduce makes
/// it no faster (p ≥ q), and both beside each other take no longer than one after the other (P ≤ s·P + Q, of
/// an all-reduce of all gradients), by more than this share. Then `libra` may be worse than `mg-opt`.
std::vector<std::string> violated_assumptions(const AllReduceProblem& problem, double tolerance = 1e-9);

}  // namespace tandem
