#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tandem/dist/all_reduce_policies.h>
#include <tandem/dist/all_reduce_profile.h>
#include <tandem/dist/link.h>

namespace tandem {

/// The most batches that a run measures to plan its all-reduces.
inline constexpr std::int64_t kMostTuningBatches = 40;
/// The fewest batches that train with a plan before it is made again: so that planning takes little of a run.
inline constexpr std::int64_t kLeastBatchesPerPlan = 10 * kMostTuningBatches;

/// What a run measured of one stage's backward pass, and how it reduces gradients since.
struct StageAllReduces {
  AllReduceProfile profile;
  double error_of_fit = 0;  ///< median of |ln(measured / fitted)| over the all-reduces
  AllReducePlan plan{};
  std::vector<std::pair<std::string, double>> predicted{};  ///< backward_ms by policy; the chosen one first
  double measured_ms = 0;                                   ///< of backward with the plan
  double computed_ms = 0;                                   ///< of it, until the last gradient was computed
};

/// What `AllReduceTuning` found. A saved one replaces the measurement of another run that has the same
/// gradients, batch size, ranks, transport, threads, link and collective (`difference`).
struct AllReduceReport {
  int ranks = 1;  ///< that reduce gradients together
  /// "threads" or "mpi": what the ranks are; empty: unknown. Times of one say little about the other.
  std::string transport{};
  int threads = 1;  ///< of a compute lane
  LinkModel link{};
  CollectiveAlgorithm collective = CollectiveAlgorithm::automatic;
  std::vector<StageAllReduces> stages{};
  std::vector<std::string> warnings{};
  std::string reason{};   ///< why this was planned when the run had a plan already, or empty
  bool is_saved = false;  ///< it was planned from a saved measurement
  /// The measured times contradict the model, or what it predicts. Often other programs kept the machine
  /// busy.
  bool is_doubtful = false;
  std::int64_t batches = 0;  ///< that were measured
};

/// Returns why `saved` says nothing about a run that has this `key`, such as "it has 4 ranks, not 2"; empty
/// if both have the same gradients, batch size, ranks, transport, threads, link and collective.
std::string difference(const AllReduceReport& saved, const AllReduceReport& key);

/// Returns the file of a stage's part: `file` for the first, then all-reduce-1.json for all-reduce.json.
std::string all_reduce_file(const std::string& file, std::size_t stage);
/// Returns a stage's part as JSON: a profile, as `read_all_reduce_profile` reads it, and what the run made of
/// it.
std::string to_json(const AllReduceReport& report, std::size_t stage);
/// Returns whether a JSON file is such a profile, rather than a plan (plan/plan_file.h).
bool holds_all_reduces(const std::string& file);
/// Reads the report whose first stage is in `file`: key and profiles, without the plans, which follow from
/// them. Throws Error naming the file, and saying what is wrong or missing.
AllReduceReport read_all_reduces(const std::string& file);

}  // namespace tandem
