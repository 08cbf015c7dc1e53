#include <tandem/plan/memory_budget.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/memory/activations.h>
#include <tandem/memory/buffer_assignment.h>
#include <tandem/memory/memory_decisions.h>
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

// A file can say anything.
void require_in_range(const MemoryProblem& problem, const MemoryPlan& plan) {
  const auto is_value = [&](int v) { return v >= 0 && v < std::ssize(problem.values); };
  const auto is_node = [&](const MemoryStep& s) {
    return s.graph >= 0 && s.graph < std::ssize(problem.graphs) && s.node >= 0 &&
           s.node < std::ssize(problem.graphs[static_cast<std::size_t>(s.graph)].nodes);
  };
  const auto exists = [&](const MemoryStep& s) { return s.value >= 0 ? is_value(s.value) : is_node(s); };
  if (!std::ranges::all_of(plan.steps, exists) || !std::ranges::all_of(plan.resident_at_start, is_value) ||
      !std::ranges::all_of(plan.host_at_start, is_value))
    throw Error("the memory plan names a node or value that its step does not have");
}

int kernels_without_time(const Program& p, int device, const Profile* profile) {
  int count = 0;
  for (const InstructionId s : p.instructions.ids()) {
    const Lane& lane = p.lane_of(s);
    const Instruction& instruction = p.instruction(s);
    if (lane.device == device && lane.kind == LaneKind::compute && instruction.op &&
        !(profile && profile->find(instruction, p.threads)))
      ++count;
  }
  return count;
}

std::int64_t host_peak(const Program& p) { return std::ranges::max(p.memory, {}, &DeviceMemory::host).host; }

class Planning {
 public:
  Planning(const ListedGraph& step, const Program& plain, const LowerOptions& options,
           const Strategy& strategy)
      : step_(step),
        options_(options),
        policy_(memory_policy(strategy.memory_plan.empty() ? "mu-two+" : strategy.memory_plan)),
        budget_(strategy.memory_budget),
        host_budget_(strategy.host_budget),
        known_(strategy.known_memory_plans) {
    const BufferAssignment buffers = assign_buffers(step.graph, step.order, step.keep);
    for (int d = 0; d < plain.devices; ++d) {
      problems_.push_back(step_problem(step, buffers, plain, d, strategy.copy_link));
      estimated_.push_back(kernels_without_time(plain, d, strategy.profile.get()));
    }
    if (policy_.name == kListsPolicy) list(strategy);
  }

  PlannedMemory run() {
    if (!known_.empty()) return take(repeated());
    Try found = planned_by_policy();
    return take(exceeds_host(found) ? planned_without_swaps() : std::move(found));
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

  void list(const Strategy& strategy) {
    const auto swapped = select_activations(step_.graph, strategy.swap, Eviction::swap),
               recomputed = select_activations(step_.graph, strategy.recompute, Eviction::recompute);
    for (StepProblem& p : problems_)
      for (const int v : candidates_of(p.problem)) {
        const ValueId value = p.values[static_cast<std::size_t>(v)];
        if (contains(recomputed, value))
          p.problem.lists.recompute.push_back(v);
        else if (contains(swapped, value))
          p.problem.lists.swap.push_back(v);
      }
  }

  bool exceeds_host(const Try& found) const {
    return !only_recomputes_ && host_budget_ > 0 && host_peak(found.program) > host_budget_;
  }
  Try planned_without_swaps() {
    for (StepProblem& p : problems_) p.problem.link = {};
    only_recomputes_ = true;
    return planned_by_policy();
  }

  Try planned_by_policy() {
    Limits limits(problems_.size(), budget_ > 0 ? budget_ : std::numeric_limits<std::int64_t>::max());
    for (int i = 0; i < kMostTries; ++i) {
      Try now = planned_within(limits);
      if (now.fits) return now;
      if (!now.is_feasible) break;
      for (std::size_t d = 0; d < limits.size(); ++d)
        limits[d] -= std::max<std::int64_t>(0, planned_peak(now.program, static_cast<int>(d)) - budget_);
    }
    return between_smallest_and(limits);
  }

  Try repeated() {
    if (known_.size() < problems_.size())
      throw Error(fmt::format("the memory plan is for {}, and the step is on {}",
                              counted(std::ssize(known_), "device"),
                              counted(std::ssize(problems_), "device")));
    Try known;
    for (const StepProblem& step : problems_) {
      // Models that take turns have a plan for each step.
      const auto found = std::ranges::find(known_, checksum_of(step.problem), &KnownMemoryPlan::problem);
      if (found == known_.end())
        throw Error(
            "the memory plan is for another step: it fits only the network, batch, models, strategy and threads of "
            "the run that made it");
      require_in_range(step.problem, found->plan);
      known.plans.push_back({found->plan, replay(step.problem, found->plan)});
    }
    known.program = program_of(known.plans);
    return known;
  }

  Try planned_within(const Limits& limits) {
    Try result;
    for (std::size_t d = 0; d < problems_.size(); ++d) {
      result.plans.push_back(policy_.make(problems_[d].problem, limits[d]));
      if (result.plans.back().cost.peak_bytes > limits[d]) result.is_feasible = false;
    }
    result.program = program_of(result.plans);
    result.fits = budget_ == 0 || planned_peak(result.program) <= budget_;
    return result;
  }

  // The placement can need less for one plan than for another with a smaller peak. Returns the fastest plan
  // that was found whose placement fits, between the one with the smallest peak and `limits`.
  Try between_smallest_and(Limits most) {
    Limits least;
    for (const StepProblem& p : problems_) least.push_back(p.problem.static_bytes);
    Try best = planned_within(least);
    if (!best.fits && exceeds_host(best)) return planned_without_swaps();
    if (!best.fits) refuse(best.program);
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
      result.devices.push_back({std::move(problems_[d]), std::move(found.plans[d]), estimated_[d]});
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

  // `smallest` is found under any budget. What other tries have found can be smaller, but a run with that
  // budget may not find it again.
  [[noreturn]] void refuse(const Program& smallest) const {
    const int fullest = fullest_device(smallest);
    const std::int64_t peak = planned_peak(smallest, fullest);
    throw BudgetTooSmall(
        fmt::format(
            "the memory budget of {} bytes is too small: the smallest budget that works with '{}'{} is "
            "{}{}. Use smaller batches or micro-batches",
            budget_, policy_.name,
            only_recomputes_
                ? fmt::format(" and without swaps, which exceed the host budget of {},", host_budget_)
                : "",
            enough_bytes(peak),
            problems_.size() == 1 ? "" : fmt::format(", of which device {} needs most", fullest)),
        peak);
  }

  const ListedGraph& step_;
  const LowerOptions& options_;
  const MemoryPolicy& policy_;
  const std::int64_t budget_, host_budget_;
  bool only_recomputes_ = false;  // since swaps exceed the host's budget
  const std::vector<KnownMemoryPlan>& known_;
  std::vector<StepProblem> problems_;  // by device
  std::vector<int> estimated_;         // kernels, by device
};

}  // namespace

std::string enough_bytes(std::int64_t bytes) {
  return fmt::format("{} bytes ({:.1f} MB)", bytes, std::ceil(static_cast<double>(bytes) / 1e5) / 10);
}

bool plans_memory(const Strategy& strategy, const Program& plain) {
  if (!strategy.train) return false;
  if (!strategy.memory_plan.empty() || !strategy.known_memory_plans.empty()) return true;
  const bool is_ring = strategy.array_order == ArrayOrder::ring && strategy.arrays.size() > 1;
  return strategy.memory_budget > 0 && strategy.swap.empty() && strategy.recompute.empty() &&
         planned_peak(plain) > strategy.memory_budget &&
         (is_ring || !schedule_of(strategy).overlaps_batches());
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
  throw BudgetTooSmall(
      fmt::format(
          "the memory budget of {} bytes is too small for this plan{}: by {}; the smallest budget that "
          "works with it is {}. Swap or recompute more activations, or use smaller micro-batches",
          budget, where, counted(peak - budget, "byte"), enough_bytes(peak)),
      peak);
}

void check_host_budget(const Program& p, std::int64_t budget) {
  if (budget > 0 && host_peak(p) > budget)
    throw Error(fmt::format(
        "the host budget of {} bytes is too small: the memory plan keeps {} bytes of activations on the host. "
        "Give more, or plan without a link to the host, so that activations are computed again",
        budget, host_peak(p)));
}

}  // namespace tandem::engine
