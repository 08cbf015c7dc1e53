#include <tandem/memory/memory_planner.h>

#include <algorithm>
#include <deque>
#include <utility>

#include <tandem/core/base/contains.h>
#include <tandem/memory/fetch_places.h>
#include <tandem/memory/memory_machine.h>
#include <tandem/memory/treated_values.h>

namespace tandem::engine {

using Kind = MemoryValue::Kind;

class MemoryPlanner::Lists {
 public:
  explicit Lists(const MemoryProblem& problem) : p_(problem), values_(problem), machine_(problem) {}

  std::optional<CostedPlan> plan(const MemoryDecisions& decisions, std::int64_t limit,
                                 const PlanRank& bound) {
    limit_ = limit;
    if (!values_.decide(decisions)) return std::nullopt;
    time_without_stalls_ = values_.time_without_stalls();
    if (PlanRank{0, time_without_stalls_} >= bound) return std::nullopt;
    values_.find_places();
    prompts_.assign(p_.values.size(), kNoPlace);
    // Without copies ahead of their reader. Those that begin earlier can need less memory, and stall less.
    if (!emit(values_.swapped().empty() ? bound : kWorst)) return std::nullopt;
    std::swap(best_, written_);
    // Copies that begin earlier change when nodes begin, and so when copies have to.
    for (int round = 0; round < kRounds && place_prompts(); ++round) {
      const PlanRank rank = rank_of(best_.cost, limit_);
      if (!emit(rank) || rank_of(written_.cost, limit_) >= rank) break;
      std::swap(best_, written_);
    }
    if (rank_of(best_.cost, limit_) >= bound) return std::nullopt;
    return best_;
  }

 private:
  static constexpr int kRounds = 2;  // a third gains nothing

  const MemoryNode& node(NodePlace place) const { return values_.node(place); }
  const Uses& uses(int v) const { return values_.uses(v); }
  Kind kind(int v) const { return values_.kind(v); }
  Treatment treated(int v) const { return values_.treated(v); }
  int deadline(int v) const { return values_.deadline(v); }
  int prompt(int v) const { return prompts_[static_cast<std::size_t>(v)]; }
  std::int64_t bytes(int v) const { return p_.values[static_cast<std::size_t>(v)].bytes; }

  // Chooses where copies from the host begin, by the times of the last list. Returns whether there are any.
  bool place_prompts() {
    const std::vector<int>& swapped = values_.swapped();
    std::vector<Fetch> fetches;
    for (const int v : swapped) {
      const int earliest = uses(v).wraps ? 0 : uses(v).last_forward + 1;  // it has begun to leave
      fetches.push_back({earliest, deadline(v), bytes(v), p_.copy_ms(v)});
      if (prompt(v) == kNoPlace) continue;
      for (int i = prompt(v); i < deadline(v); ++i) full_[static_cast<std::size_t>(i)] -= bytes(v);
    }
    const std::vector<int> places = fetch_places(fetches, begins_, full_, limit_);
    for (std::size_t i = 0; i < places.size(); ++i)
      prompts_[static_cast<std::size_t>(swapped[i])] = places[i];
    return !swapped.empty();
  }

  void step(MemoryStep::Kind kind, int v) { execute({kind, v, kNoPlace, kNoPlace}); }
  void compute(MemoryStep::Kind kind, NodePlace place) { execute({kind, kNoPlace, place.graph, place.node}); }
  void execute(const MemoryStep& step) {
    written_.plan.steps.push_back(step);
    machine_.execute(step);
    const std::int64_t workspace = step.node >= 0 ? node({step.graph, step.node}).workspace_bytes : 0;
    highest_ = std::max(highest_, machine_.live_bytes() + workspace);
  }
  void free(int v) { step(MemoryStep::Kind::free, v); }

  // Frees sources whose copies have ended, and as many others as `need` takes.
  void release_copied(std::int64_t need) {
    while (!leaving_.empty() && (machine_.copied_at(leaving_.front()) <= machine_.clock_ms() ||
                                 machine_.live_bytes() + need > limit_)) {
      const int v = leaving_.front();
      stays(v);
      step(MemoryStep::Kind::wait, v);
      free(v);
    }
  }
  void alloc(int v, std::int64_t more = 0) {
    release_copied(bytes(v) + more);
    if (leaves(v)) {  // it is needed again before its copy has ended
      stays(v);
      step(MemoryStep::Kind::wait, v);
      return;
    }
    if (!machine_.is_resident(v)) step(MemoryStep::Kind::alloc, v);
  }
  bool leaves(int v) const { return leaves_[static_cast<std::size_t>(v)]; }
  void leave(int v) {
    leaving_.push_back(v);
    leaves_[static_cast<std::size_t>(v)] = true;
  }
  void stays(int v) {
    if (!leaves(v)) return;
    if (leaving_.front() == v)
      leaving_.pop_front();
    else
      std::erase(leaving_, v);
    leaves_[static_cast<std::size_t>(v)] = false;
  }

  // A value that has not left yet stays, though nothing may read it before its copy has ended.
  void begin_fetch(int v) {
    if (leaves(v)) return stays(v);
    alloc(v);
    step(MemoryStep::Kind::h2d, v);
  }
  void release_source(int v) {
    stays(v);
    step(MemoryStep::Kind::wait, v);
    free(v);
  }

  void prepare(const MemoryNode& n, int i) {
    for (const int v : n.inputs) {
      if (treated(v) != Treatment::swap) continue;
      if (deadline(v) == i && !machine_.is_resident(v)) begin_fetch(v);
      if (machine_.is_under_copy(v)) {
        step(MemoryStep::Kind::wait, v);
        stays(v);
      }
    }
    if (!leaving_.empty()) {
      std::int64_t need = n.workspace_bytes;
      for (const int v : n.outputs)
        if (!machine_.is_resident(v)) need += bytes(v);
      release_copied(need);
    }
    for (const int v : n.outputs) {
      if (machine_.is_under_copy(v) && !leaves(v)) step(MemoryStep::Kind::wait, v);  // it is on its way back
      alloc(v);
    }
  }

  void recompute_at(int i) {
    const std::vector<NodePlace>& nodes = values_.repeated_before(i);
    for (std::size_t k = 0; k < nodes.size(); ++k)
      for (const int v : node(nodes[k]).inputs) last_repeats_[static_cast<std::size_t>(v)] = {i, k};
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      const MemoryNode& n = node(nodes[k]);
      prepare(n, i);
      compute(MemoryStep::Kind::recompute, nodes[k]);
      // Free what no later node of the closure reads, and nothing else needs from here.
      const auto is_read = [&](int v) {
        const auto& [place, last] = last_repeats_[static_cast<std::size_t>(v)];
        return place == i && last > k;
      };
      const auto remains = [&](int v) {
        if (contains(values_.node(i).inputs, v)) return true;
        if (kind(v) == Kind::input) return i < values_.last_read(v);
        return values_.is_there(v, i) || (treated(v) == Treatment::recompute_and_keep &&
                                          !values_.is_forward(i) && i <= uses(v).last_backward);
      };
      for (const auto* values : {&n.inputs, &n.outputs})
        for (const int v : *values)
          if (machine_.is_resident(v) && ((!remains(v) && !is_read(v)) || values_.is_made_next(v, i, k)))
            free(v);
    }
  }

  void release_after(int i) {
    const bool forward = values_.is_forward(i);
    for (const auto [v, ends] : values_.operands(i)) {
      if (!ends && !values_.can_end_early(v)) continue;
      if (!machine_.is_resident(v) || leaves(v)) continue;
      const Uses& u = uses(v);
      if (values_.is_made_next(v, i, values_.repeated_before(i).size()) || values_.rests_after(v, i)) {
        free(v);
        continue;
      }
      if (!ends) continue;
      if (kind(v) == Kind::input) {
        if (i == values_.last_read(v)) free(v);
      } else if (!forward || !u.in_forward) {
        if (kind(v) != Kind::output || u.wraps) free(v);
      } else if (u.first_backward == kNoPlace) {
        if (kind(v) != Kind::output) free(v);
      } else if (treated(v) == Treatment::swap) {
        step(MemoryStep::Kind::d2h, v);
        leave(v);
      } else if (is_recomputed_for_backward(treated(v))) {
        free(v);
      }
    }
  }

  // Returns false, and leaves the plan unfinished, if it cannot rank below this.
  bool emit(const PlanRank& bound) {
    const double latest = bound.second * (1 + 1e-9);  // sums of other parts are rounded otherwise
    MemoryPlan& plan = written_.plan;
    plan.steps.clear();
    plan.resident_at_start.clear();
    plan.host_at_start.clear();
    for (const int v : values_.wrapping()) {
      if (treated(v) == Treatment::swap)
        plan.host_at_start.push_back(v);
      else if (!is_recomputed_for_backward(treated(v)) && !values_.is_made_first(v))
        plan.resident_at_start.push_back(v);
    }
    machine_.begin(plan.resident_at_start, plan.host_at_start);
    last_repeats_.assign(p_.values.size(), {kNoPlace, 0});
    leaving_.clear();
    leaves_.assign(p_.values.size(), false);
    begins_.assign(static_cast<std::size_t>(values_.places()), 0);
    full_.assign(static_cast<std::size_t>(values_.places()), 0);
    std::vector<int> fetched;  // in the order in which they begin to move
    for (const int v : values_.swapped())
      if (prompt(v) != kNoPlace) fetched.push_back(v);
    std::ranges::stable_sort(fetched, {}, [&](int v) { return std::pair(prompt(v), deadline(v)); });
    auto next = fetched.begin();
    for (int i = 0; i < values_.places(); ++i) {
      const MemoryNode& n = values_.node(i);
      highest_ = 0;
      begins_[static_cast<std::size_t>(i)] = machine_.clock_ms();
      release_copied(0);
      for (; next != fetched.end() && prompt(*next) == i; ++next)
        if (!machine_.is_resident(*next) || leaves(*next)) begin_fetch(*next);
      recompute_at(i);
      prepare(n, i);
      compute(MemoryStep::Kind::run, values_.place(i));
      release_after(i);
      full_[static_cast<std::size_t>(i)] = highest_;
      if (highest_ - limit_ > bound.first) return false;
      if (bound.first == 0 && time_without_stalls_ + machine_.stall_ms() > latest) return false;
    }
    while (!leaving_.empty()) release_source(leaving_.front());
    written_.cost = machine_.finish();
    return true;
  }

  const MemoryProblem& p_;
  TreatedValues values_;
  std::int64_t limit_ = 0;
  double time_without_stalls_ = 0;
  std::vector<std::pair<int, std::size_t>> last_repeats_;  // per value: place and node that read it last
  std::vector<int> prompts_;                               // per value: where it begins to come back
  std::vector<double> begins_;                             // per place: when it begins
  std::vector<std::int64_t> full_;                         // per place: the most bytes there
  std::int64_t highest_ = 0;
  std::deque<int> leaving_;   // under copy to the host, to be freed then
  std::vector<bool> leaves_;  // per value: whether it is one of them
  MemoryMachine machine_;
  CostedPlan written_, best_;
};

MemoryPlanner::MemoryPlanner(const MemoryProblem& problem) : lists_(std::make_unique<Lists>(problem)) {}
MemoryPlanner::~MemoryPlanner() = default;

std::optional<CostedPlan> MemoryPlanner::plan(const MemoryDecisions& decisions, std::int64_t limit,
                                              const PlanRank& bound) {
  return lists_->plan(decisions, limit, bound);
}

std::optional<CostedPlan> plan_of(const MemoryProblem& problem, const MemoryDecisions& decisions,
                                  std::int64_t limit, const PlanRank& bound) {
  return MemoryPlanner(problem).plan(decisions, limit, bound);
}

}  // namespace tandem::engine
