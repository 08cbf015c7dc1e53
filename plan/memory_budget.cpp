#include <tandem/plan/memory_budget.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/memory/buffer_assignment.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/memory/placement.h>

namespace tandem::engine {
namespace {

constexpr int kMostTries = 5, kBisections = 4;

int fullest_device(const Program& p) {
  int fullest = 0;
  for (int d = 1; d < p.devices; ++d)
    if (planned_peak(p, d) > planned_peak(p, fullest)) fullest = d;
  return fullest;
}

class Planning {
 public:
  Planning(const ListedGraph& step, const Program& plain, const LowerOptions& options,
           const Strategy& strategy)
      : step_(step),
        options_(options),
        policy_(memory_policy(strategy.memory_plan.empty() ? "mu-two+" : strategy.memory_plan)),
        budget_(strategy.memory_budget) {
    const BufferAssignment buffers = assign_buffers(step.graph, step.order, step.keep);
    for (int d = 0; d < plain.devices; ++d)
      problems_.push_back(step_problem(step, buffers, plain, d, strategy.copy_link));
  }

  PlannedMemory run() {
    Limits limits(problems_.size(), budget_ > 0 ? budget_ : std::numeric_limits<std::int64_t>::max());
    for (int i = 0; i < kMostTries; ++i) {
      Try now = planned_within(limits);
      if (!now.is_feasible) break;
      if (now.fits) return take(std::move(now));
      for (std::size_t d = 0; d < limits.size(); ++d)
        limits[d] -= std::max<std::int64_t>(0, planned_peak(now.program, static_cast<int>(d)) - budget_);
    }
    return take(between_smallest_and(limits));
  }

 private:
  using Limits = std::vector<std::int64_t>;  // of live bytes, by device
  struct Try {
    std::vector<CostedPlan> plans{};  // by device
    Program program{};
    bool is_feasible = true, fits = false;
    double ms() const { return std::ranges::max(plans, {}, time_of).cost.time_ms; }
    static double time_of(const CostedPlan& plan) { return plan.cost.time_ms; }
  };

  Try planned_within(const Limits& limits) {
    Try result;
    for (std::size_t d = 0; d < problems_.size(); ++d) {
      result.plans.push_back(policy_.make(problems_[d].problem, limits[d]));
      if (result.plans.back().cost.peak_bytes > limits[d]) result.is_feasible = false;
    }
    result.program = program_of(result.plans);
    const std::int64_t peak = planned_peak(result.program);
    if (least_ == 0 || peak < least_) least_ = peak, fullest_ = fullest_device(result.program);
    result.fits = budget_ == 0 || peak <= budget_;
    return result;
  }

  // The placement can need less for one plan than for another with a smaller peak. Returns the fastest plan
  // that was found whose placement fits, between the one with the smallest peak and `limits`.
  Try between_smallest_and(Limits most) {
    Limits least;
    for (const StepProblem& p : problems_) least.push_back(p.problem.static_bytes);
    Try best = planned_within(least);
    if (!best.fits) refuse();
    for (std::size_t d = 0; d < least.size(); ++d) least[d] = best.plans[d].cost.peak_bytes;
    for (int i = 0; i < kBisections; ++i) {
      Limits middle;
      for (std::size_t d = 0; d < least.size(); ++d) middle.push_back(std::midpoint(least[d], most[d]));
      Try now = planned_within(middle);
      (now.fits ? least : most) = middle;
      if (now.fits && now.ms() < best.ms()) best = std::move(now);
    }
    return best;
  }

  PlannedMemory take(Try found) {
    PlannedMemory result{std::move(found.program), {}};
    for (std::size_t d = 0; d < problems_.size(); ++d)
      result.devices.push_back({std::move(problems_[d]), std::move(found.plans[d])});
    return result;
  }

  Program program_of(const std::vector<CostedPlan>& costed) const {
    std::vector<MemoryPlan> plans;
    for (const CostedPlan& c : costed) plans.push_back(c.plan);
    const ListedGraph listed = apply_memory_plans(step_, problems_, plans);
    return engine::planned(lower(listed.graph, listed.order,
                                 assign_buffers(listed.graph, listed.order, listed.keep), options_,
                                 listed.waits));
  }

  [[noreturn]] void refuse() const {
    throw Error(
        fmt::format("the memory budget of {} bytes is too small: the smallest budget that works with '{}' is "
                    "{}{}. Use smaller batches or micro-batches",
                    budget_, policy_.name, least_,
                    problems_.size() == 1 ? "" : fmt::format(", of which device {} needs most", fullest_)));
  }

  const ListedGraph& step_;
  const LowerOptions& options_;
  const MemoryPolicy& policy_;
  std::int64_t budget_;
  std::int64_t least_ = 0;  // the smallest peak of all placements, and the device that needs it
  int fullest_ = 0;
  std::vector<StepProblem> problems_;  // by device
};

}  // namespace

bool plans_memory(const Strategy& strategy, const Program& plain) {
  if (!strategy.train) return false;
  if (!strategy.memory_plan.empty()) return true;
  return strategy.memory_budget > 0 && strategy.swap.empty() && strategy.recompute.empty() &&
         planned_peak(plain) > strategy.memory_budget && !schedule_of(strategy).overlaps_batches();
}

PlannedMemory within_budget(const ListedGraph& step, const Program& plain, const LowerOptions& options,
                            const Strategy& strategy) {
  return Planning(step, plain, options, strategy).run();
}

void check_budget(const Program& p, std::int64_t budget) {
  if (budget <= 0) return;
  const int fullest = fullest_device(p);
  const std::int64_t peak = planned_peak(p, fullest);
  if (peak <= budget) return;
  const std::string where = p.devices == 1 ? "" : fmt::format(", of which device {} needs most", fullest);
  throw Error(fmt::format(
      "the memory budget of {} bytes is too small for this plan{}: by {}; the smallest budget that works "
      "with it is {}. Swap or recompute more activations, or use smaller micro-batches",
      budget, where, counted(peak - budget, "byte"), peak));
}

}  // namespace tandem::engine
