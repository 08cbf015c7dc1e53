#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/train/all_reduce_report.h>

namespace tandem {

/// The most batches that a run measures to plan its all-reduces.
inline constexpr std::int64_t kMostTuningBatches = 40;
/// The fewest batches that train with a plan before it is made again: so that planning takes little of a run.
inline constexpr std::int64_t kLeastBatchesPerPlan = 10 * kMostTuningBatches;
/// The shortest run that plans if nothing names a policy.
inline constexpr std::int64_t kAutoBatches = 200;

/// How a run with several replicas plans its all-reduces (AllReduceTuning).
struct AllReduceOptions {
  /// The name of a policy (dist/all_reduce_policies.h), which plans from the times of the run's first
  /// batches; or "auto", which is "libra" in a Trainer's run of kAutoBatches or more. With none, and with
  /// "auto" in a shorter run, gradients are reduced as the strategy says.
  std::string policy{};
  std::vector<int> threads = {1, 2};  ///< R, among which libra and libra-m choose; one or more
  /// All is measured and planned again if backward takes longer, or less, by more than this share than when
  /// it was planned, in two calls of AllReduceTuning::run one after another, if the plan has trained
  /// kLeastBatchesPerPlan batches and as many are left. No value: it does not look.
  std::optional<double> drift = 0.1;
  std::optional<AllReduceReport> known{};  ///< what another run measured, which is used if it fits
  /// A plan whose backward takes this many times what was predicted, or a fraction so small, has a warning;
  /// if it is from `known`, the run measures its own. 1 or more.
  double far_off = 2;
};

/// Throws Error if a number is out of range, if there is no such policy, or if it is only for simulations.
void check(const AllReduceOptions& options);

}  // namespace tandem
