#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// How a policy divides several models into arrays (partitions_of in plan/array_partition.h).
enum class Division {
  in_turn,        ///< arrays train one after the other, never one's forward beside another's backward
  pairs,          ///< as in μ-TWO's paper: pairs of arrays, or all models in one
  pairs_or_alone  ///< also arrays in turn, for models that gain neither in pairs nor by fusing
};

/// A way to plan memory, by name. `make` returns the plan for a limit in bytes: one whose peak is at most the
/// limit, or else the one with the smallest peak that the policy finds.
struct MemoryPolicy {
  std::string_view name;
  std::string_view help;
  CostedPlan (*make)(const MemoryProblem& problem, std::int64_t limit);
  Division division = Division::pairs_or_alone;
  /// As `make`, but ends its search with the first plan that keeps the limit; null: `make` is as fast.
  CostedPlan (*first_fit)(const MemoryProblem& problem, std::int64_t limit) = nullptr;
};

/// The policy that does what MemoryProblem::lists say.
constexpr std::string_view kListsPolicy = "lists";
/// All policies, in the order of the documentation (docs/memory.md).
const std::vector<MemoryPolicy>& memory_policies();
/// Throws Error that lists the names if there is none of this name.
const MemoryPolicy& memory_policy(std::string_view name);

/// What a policy makes of a problem.
struct MemoryResult {
  CostedPlan best;
  bool feasible;
  /// If infeasible: the smallest limit found for which the policy has a plan.
  std::optional<std::int64_t> minimum_bytes;
};
MemoryResult plan_memory(const MemoryProblem& problem, std::int64_t limit, const MemoryPolicy& policy);

}  // namespace tandem::engine
