#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tandem/dist/all_reduce_policies.h>
#include <tandem/dist/contention_fit.h>

namespace tandem {

/// The most batches that a run measures to plan its all-reduces.
inline constexpr std::int64_t kMostTuningBatches = 40;

/// What a run measured of one stage's backward pass, and how it reduces gradients since.
struct StageAllReduces {
  std::vector<GradientLayer> layers;  ///< with the times of backward alone
  double forward_ms = 0;
  ContentionFit fit{};
  AllReducePlan plan{};
  std::vector<std::pair<std::string, double>> predicted{};  ///< backward_ms by policy; the chosen one first
  double measured_ms = 0;                                   ///< of backward with the plan
};

/// What `AllReduceTuning` found.
struct AllReduceReport {
  std::vector<StageAllReduces> stages;
  std::vector<std::string> warnings;
  std::int64_t batches = 0;  ///< that were measured
};

}  // namespace tandem
