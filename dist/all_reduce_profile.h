#pragma once
#include <optional>
#include <string>
#include <vector>

#include <tandem/dist/all_reduce_costs.h>
#include <tandem/dist/all_reduce_policies.h>

namespace tandem {

/// What is known of a training run without its weights: what backward computes, and what all-reduces cost.
/// It is of one rank, and holds for any number of ranks with the same links.
struct AllReduceProfile {
  std::vector<GradientLayer> layers;  ///< in the order of backward
  Contention contention{};
  std::optional<ThreadTable> baseline{};  ///< if none is given: nccl_threads; of a table its first
  double hop_latency_ms = 0;
  double forward_ms = 0;
  double batch_size = 1;  ///< samples per rank
  // Of the run that measured it:
  int ranks = 0;                    ///< 0: unknown
  std::vector<int> comm_threads{};  ///< numbers of threads from which it chose; empty: unknown

  double compute_ms() const;  ///< of backward, alone
};

/// Returns the profile as JSON, as `read_all_reduce_profile` reads it. `run`, JSON too, is what a run adds:
/// its plan, and how well it was predicted; a reader takes only `ranks` and `comm_threads` from it.
std::string to_json(const AllReduceProfile& profile, const std::string& run = "");

/// Returns the profile that a JSON text describes (docs/data-parallel.md). Throws Error that begins with
/// `what`, and says where it is malformed.
AllReduceProfile all_reduce_profile_of(const std::string& what, const std::string& text);

/// Reads a profile from a file. Throws Error naming the file, and saying where it is malformed.
AllReduceProfile read_all_reduce_profile(const std::string& file);

/// Returns what a policy plans for on a ring of `ranks`, if it may choose from `allocations` threads. Throws
/// Error if their rates are not known.
AllReduceProblem problem_of(const AllReduceProfile& profile, int ranks, const std::vector<int>& allocations);

}  // namespace tandem
