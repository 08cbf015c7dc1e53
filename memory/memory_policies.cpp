#include <tandem/memory/memory_policies.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>
#include <tandem/memory/lifetimes.h>
#include <tandem/memory/memory_planner.h>
#include <tandem/memory/optimal_plan.h>

namespace tandem::engine {
namespace {

MemoryDecisions none(const MemoryProblem& problem, std::int64_t) { return retain_all(problem); }

MemoryDecisions vdnn(const MemoryProblem& problem, std::int64_t) {
  MemoryDecisions d = retain_all(problem);
  if (!problem.can_copy()) return d;
  for (const int v : candidates_of(problem)) d.values[static_cast<std::size_t>(v)] = Treatment::swap;
  return d;
}

// Chen et al.: of n values, every √n-th stays; the others of a segment are computed again together.
MemoryDecisions checkpoint(const MemoryProblem& problem, std::int64_t limit) {
  const std::vector<int> candidates = candidates_of(problem);
  const auto segment = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(candidates.size()))));
  MemoryPlanner planner(problem);
  const auto decided = [&](bool tests) {
    MemoryDecisions d = retain_all(problem);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if ((i + 1) % segment == 0) continue;
      Treatment& t = d.values[static_cast<std::size_t>(candidates[i])];
      t = Treatment::recompute_and_keep;
      if (tests && !planner.plan(d, limit)) t = Treatment::retain;  // a node of it cannot be repeated
    }
    return d;
  };
  MemoryDecisions all = decided(/*tests=*/false);
  return planner.plan(all, limit) ? all : decided(/*tests=*/true);
}

// The paper's greedy scheduler (algorithms B to F, as docs/memory.md settles them): swaps or recomputes one
// value after the other, whichever costs less time, until the plan is within the limit.
class Greedy {
 public:
  struct Options {
    bool free_time;    ///< ranks swaps by the time that their copies leave (Capuchin), not by all of it
    bool multiplexes;  ///< moves the next graph's forward nodes beside copies
  };
  Greedy(const MemoryProblem& problem, std::int64_t limit, Options options)
      : p_(problem),
        planner_(problem),
        limit_(limit),
        options_(options),
        lifetimes_(problem),
        first_readers_(first_readers(problem)),
        d_(retain_all(problem)),
        now_(*planner_.plan(d_, limit)),
        left_(candidates_of(problem)),
        at_once_(1 + (std::max(1, static_cast<int>(left_.size())) - 1) / kPlannedOneByOne) {}

  // Returns the first decisions that keep the limit, or else those with the smallest peak.
  MemoryDecisions run() {
    MemoryDecisions best = d_;
    PlanRank rank = rank_of(now_.cost, limit_);
    while (rank.first > 0 && !left_.empty()) {
      take_some();
      if (rank_of(now_.cost, limit_) >= rank) continue;
      rank = rank_of(now_.cost, limit_);
      best = d_;
    }
    return best;
  }

 private:
  struct Try {
    int value;
    MemoryDecisions decisions;
    std::optional<CostedPlan> plan;
  };
  Treatment& treatment(MemoryDecisions& d, int v) const { return d.values[static_cast<std::size_t>(v)]; }

  void take_some() {
    Try recomputed = try_recompute(next_to_recompute());
    Try chosen = p_.can_copy() ? try_swap(next_to_swap()) : recomputed;
    if (recomputed.plan && recomputed.plan->cost.time_ms < chosen.plan->cost.time_ms)
      chosen = std::move(recomputed);
    std::erase(left_, chosen.value);
    if (!chosen.plan) return;
    d_ = std::move(chosen.decisions);
    now_ = std::move(*chosen.plan);
    if (at_once_ > 1) take_alike(treatment(d_, chosen.value));
  }

  // In a large graph the next values are treated alike, without a plan for each, as far as they are needed.
  void take_alike(Treatment t) {
    const MemoryDecisions before = d_;
    const std::vector<int> left = left_;
    std::int64_t above = now_.cost.peak_bytes - limit_;
    for (int i = 1; i < at_once_ && above > 0 && !left_.empty(); ++i) {
      const int v = t == Treatment::swap ? next_to_swap() : next_to_recompute();
      treatment(d_, v) = t;
      std::erase(left_, v);
      above -= p_.values[static_cast<std::size_t>(v)].bytes;
    }
    if (left_.size() == left.size()) return;
    if (auto plan = planner_.plan(d_, limit_)) {
      now_ = std::move(*plan);
    } else {  // one of them cannot be computed again
      d_ = before;
      left_ = left;
    }
  }

  int next_to_swap() const {
    return *std::ranges::max_element(left_, {}, [&](int v) {
      return lifetimes_.rest_ms(v) - (options_.free_time ? 2 * p_.copy_ms(v) : 0);
    });
  }
  int next_to_recompute() const {
    const std::vector<int> count = counts();
    int best = left_.front();
    double most = -1;
    for (const int v : left_)
      if (const double ratio = recompute_ratio(v, count[static_cast<std::size_t>(v)]); ratio > most)
        most = ratio, best = v;
    return best;
  }

  // Per value, how often it would be made again: for itself, and for each recomputed value that needs it.
  std::vector<int> counts() const {
    std::vector<int> counts(p_.values.size(), 1);
    for (const int other : recomputed_values()) {
      std::vector<int> needed;
      lifetimes_.recompute_ms(other, d_.values, &needed);
      for (const int v : needed) ++counts[static_cast<std::size_t>(v)];
    }
    return counts;
  }
  double recompute_ratio(int v, int count) const {
    const double ms = count * lifetimes_.recompute_ms(v, d_.values);
    return static_cast<double>(p_.values[static_cast<std::size_t>(v)].bytes) / std::max(ms, 1e-12);
  }
  std::vector<int> recomputed_values() const {
    std::vector<int> found;
    for (int v = 0; v < std::ssize(d_.values); ++v)
      if (d_.values[static_cast<std::size_t>(v)] == Treatment::recompute) found.push_back(v);
    return found;
  }

  Try try_recompute(int v) {
    Try t{v, d_, {}};
    treatment(t.decisions, v) = Treatment::recompute;
    t.plan = planner_.plan(t.decisions, limit_);
    return t;
  }
  Try try_swap(int v) {
    Try t{v, d_, {}};
    treatment(t.decisions, v) = Treatment::swap;
    t.plan = planner_.plan(t.decisions, limit_);
    if (!options_.multiplexes || !p_.is_ring()) return t;
    int most = next_after(v).forward_nodes();
    for (int tries = 0; tries < kMostMoves; ++tries) {
      const int count = std::min(most, nodes_as_long_as_stall(t));
      if (count == 0) break;
      if (!move_forward(t, count)) most = count / 2;
    }
    return t;
  }

  // The graph whose forward is computed beside the backward of a value's graph.
  const MemoryGraph& next_after(int v) const {
    const int graph = first_readers_[static_cast<std::size_t>(v)].graph;
    return p_.graphs[static_cast<std::size_t>(p_.next_in_ring(graph))];
  }
  // How many forward nodes of the next graph, that could move before the first reader of the swapped value,
  // take as long as it stalls.
  int nodes_as_long_as_stall(const Try& t) const {
    const auto [graph, reader] = first_readers_[static_cast<std::size_t>(t.value)];
    const MemoryGraph& other = next_after(t.value);
    const double stall = t.plan->cost.stall_ms - now_.cost.stall_ms;
    const int first = t.decisions.forward_before[static_cast<std::size_t>(graph)][reader],
              forward = other.forward_nodes();
    int count = 0;
    for (double ms = 0; stall > 1e-9 && ms < stall && first + count < forward; ++count)
      ms += other.nodes[static_cast<std::size_t>(first + count)].run_ms;
    return count;
  }
  // Moves so many there. Returns whether that helps; if not, they stay.
  bool move_forward(Try& t, int count) {
    const auto [graph, reader] = first_readers_[static_cast<std::size_t>(t.value)];
    const int forward = next_after(t.value).forward_nodes();
    MemoryDecisions moved = t.decisions;
    auto& before = moved.forward_before[static_cast<std::size_t>(graph)];
    for (std::size_t b = reader; b < before.size(); ++b) before[b] = std::min(before[b] + count, forward);
    auto plan = planner_.plan(moved, limit_);
    if (plan->cost.peak_bytes > std::max(limit_, t.plan->cost.peak_bytes) ||
        plan->cost.time_ms > t.plan->cost.time_ms)
      return false;
    t.decisions = std::move(moved);
    t.plan = std::move(plan);
    return true;
  }
  struct Reader {
    int graph;
    std::size_t place;  // among the nodes of backward and update
  };
  // Per value, the first of them that reads it.
  static std::vector<Reader> first_readers(const MemoryProblem& problem) {
    std::vector<Reader> readers(problem.values.size());
    std::vector<bool> found(readers.size());
    for (int g = 0; g < std::ssize(problem.graphs); ++g) {
      std::size_t b = 0;
      for (const MemoryNode& n : problem.graphs[static_cast<std::size_t>(g)].nodes) {
        if (n.phase == Phase::forward) continue;
        for (const int v : n.inputs)
          if (const auto i = static_cast<std::size_t>(v); !found[i]) {
            found[i] = true;
            readers[i] = {g, b};
          }
        ++b;
      }
    }
    return readers;
  }

  const MemoryProblem& p_;
  MemoryPlanner planner_;
  std::int64_t limit_;
  Options options_;
  Lifetimes lifetimes_;
  std::vector<Reader> first_readers_;
  MemoryDecisions d_;
  CostedPlan now_;
  std::vector<int> left_;                       // neither swapped nor recomputed yet
  static constexpr int kPlannedOneByOne = 300;  // values at most
  static constexpr int kMostMoves = 4;          // of forward nodes, for one swap
  const int at_once_;
};

MemoryDecisions greedy(const MemoryProblem& problem, std::int64_t limit, Greedy::Options options) {
  return Greedy(problem, limit, options).run();
}
MemoryDecisions capuchin(const MemoryProblem& problem, std::int64_t limit) {
  return greedy(problem, limit, {.free_time = true, .multiplexes = false});
}
MemoryDecisions mu_two(const MemoryProblem& problem, std::int64_t limit) {
  return greedy(problem, limit, {.free_time = false, .multiplexes = true});
}

// Starts from the best decisions of the other policies, and changes them, one or two at a time, as long as
// the plan gets better.
class LocalSearch {
 public:
  enum class End : std::uint8_t { when_nothing_helps, when_one_fits };
  LocalSearch(const MemoryProblem& problem, std::int64_t limit, End end = End::when_nothing_helps)
      : p_(problem),
        planner_(problem),
        limit_(limit),
        end_(end),
        candidates_(candidates_of(problem)),
        read_apart_(read_apart(problem)) {
    if (problem.can_copy()) treatments_.insert(treatments_.begin() + 1, Treatment::swap);
    std::size_t nodes = 0;
    for (const MemoryGraph& graph : problem.graphs) nodes += graph.nodes.size();
    left_ = std::min<std::size_t>(kMostPlans, kNodesPlanned / nodes);
    for (const auto policy : {mu_two, capuchin, checkpoint, vdnn})
      if (left_ > 0) try_plan(policy(problem, limit));
  }

  MemoryDecisions run() {
    if (candidates_.empty()) return best_;
    do {
      while (change_each(candidates_, treatments_)) {
      }
    } while (change_each(read_apart_, within_a_pass_));
    while (left_ > 0) change_two();
    return best_;
  }

 private:
  static constexpr std::size_t kMostPlans = 20'000, kNodesPlanned = 1'500'000;  // in about half a second

  bool try_plan(const MemoryDecisions& d) {
    if (left_ == 0) return false;
    --left_;
    const auto plan = planner_.plan(d, limit_, rank_);
    if (!plan) return false;
    best_ = d;
    rank_ = rank_of(plan->cost, limit_);
    if (end_ == End::when_one_fits && rank_.first == 0) left_ = 0;
    return true;
  }
  std::size_t draw(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(rng_); }

  bool change_each(const std::vector<int>& values, const std::vector<Treatment>& treatments) {
    bool improved = false;
    for (const int v : values)
      for (const Treatment t : treatments) {
        if (left_ == 0) return improved;
        MemoryDecisions d = best_;
        if (std::exchange(d.values[static_cast<std::size_t>(v)], t) != t) improved = try_plan(d) || improved;
      }
    return improved;
  }
  void change_two() {
    MemoryDecisions d = best_;
    if (p_.is_ring() && draw(3) == 0)
      move_forward_nodes(d.forward_before[draw(d.forward_before.size())]);
    else
      for (int i = 0; i < 2; ++i)
        if (!read_apart_.empty() && draw(8) == 0)
          change_one(d, read_apart_, within_a_pass_);
        else
          change_one(d, candidates_, treatments_);
    try_plan(d);
  }
  void change_one(MemoryDecisions& d, const std::vector<int>& values, const std::vector<Treatment>& to) {
    d.values[static_cast<std::size_t>(values[draw(values.size())])] = to[draw(to.size())];
  }
  void move_forward_nodes(std::vector<int>& before) {
    const int change = draw(2) == 0 ? 1 : -1;
    for (std::size_t b = draw(before.size()); b < before.size(); ++b)
      before[b] = std::max(0, before[b] + change);
    for (std::size_t b = 1; b < before.size(); ++b) before[b] = std::max(before[b], before[b - 1]);
  }

  const MemoryProblem& p_;
  MemoryPlanner planner_;
  std::int64_t limit_;
  End end_;
  std::vector<int> candidates_, read_apart_;
  std::vector<Treatment> treatments_{Treatment::retain, Treatment::recompute, Treatment::recompute_and_keep};
  const std::vector<Treatment> within_a_pass_{Treatment::recompute_each, Treatment::recompute_in_backward};
  std::size_t left_;  // plans to try
  MemoryDecisions best_;
  PlanRank rank_ = kWorst;
  std::mt19937_64 rng_{1};
};
MemoryDecisions mu_two_plus(const MemoryProblem& problem, std::int64_t limit) {
  return LocalSearch(problem, limit).run();
}
MemoryDecisions first_fit_of_search(const MemoryProblem& problem, std::int64_t limit) {
  return LocalSearch(problem, limit, LocalSearch::End::when_one_fits).run();
}

CostedPlan lists(const MemoryProblem& problem, std::int64_t limit) {
  MemoryDecisions d = retain_all(problem);
  if (problem.can_copy())
    for (const int v : problem.lists.swap) d.values[static_cast<std::size_t>(v)] = Treatment::swap;
  MemoryDecisions all = d;
  for (const int v : problem.lists.recompute) all.values[static_cast<std::size_t>(v)] = Treatment::recompute;
  if (auto plan = plan_of(problem, all, limit)) return std::move(*plan);
  const auto first_that_cannot_be = std::ranges::find_if(problem.lists.recompute, [&](int v) {
    d.values[static_cast<std::size_t>(v)] = Treatment::recompute;
    return !plan_of(problem, d, limit);
  });
  throw Error(
      fmt::format("the lists recompute value {}, which cannot be computed again: what it is made of "
                  "is updated or gone by then",
                  problem.values[static_cast<std::size_t>(*first_that_cannot_be)].id));
}

template <MemoryDecisions (*decide)(const MemoryProblem&, std::int64_t)>
CostedPlan plan_by(const MemoryProblem& problem, std::int64_t limit) {
  return *plan_of(problem, decide(problem, limit), limit);
}

CostedPlan first_fit_of_optimal(const MemoryProblem& problem, std::int64_t limit) {
  CostedPlan found = plan_by<first_fit_of_search>(problem, limit);
  if (found.cost.peak_bytes <= limit) return found;
  auto best = optimal_plan(problem, limit, /*copies=*/problem.can_copy());
  return best ? std::move(*best) : found;
}
CostedPlan optimal(const MemoryProblem& problem, std::int64_t limit) {
  CostedPlan known = plan_by<mu_two_plus>(problem, limit);
  const bool fits = known.cost.peak_bytes <= limit;
  auto best =
      optimal_plan(problem, limit, /*copies=*/problem.can_copy(), fits ? std::optional(known) : std::nullopt);
  return best ? std::move(*best) : known;
}
CostedPlan checkmate(const MemoryProblem& problem, std::int64_t limit) {
  auto best = optimal_plan(problem, limit, /*copies=*/false);
  return best ? std::move(*best) : plan_by<none>(problem, limit);
}

}  // namespace

const std::vector<MemoryPolicy>& memory_policies() {
  static const std::vector<MemoryPolicy> table{
      {"none", "keeps everything on the device", plan_by<none>},
      {kListsPolicy, "swaps and recomputes what the lists of a plan file name, and nothing else", lists},
      {"vdnn", "swaps every activation", plan_by<vdnn>},
      {"checkpoint", "keeps every sqrt(n)-th activation, and recomputes the others (Chen et al.)",
       plan_by<checkpoint>},
      {"checkmate", "the least time without copies (small graphs; Jain et al.)", checkmate},
      {"capuchin", "swaps or recomputes, one graph's copies beside its own work alone", plan_by<capuchin>},
      {"hfta", "keeps everything; arrays of models, the largest that fit, train in turn (Wang et al.)",
       plan_by<none>, Division::in_turn},
      {"hfta-capuchin", "the same, with capuchin in each array", plan_by<capuchin>, Division::in_turn},
      {"mu-two", "the paper's greedy scheduler: copies also beside the next graph's forward", plan_by<mu_two>,
       Division::pairs},
      {"mu-two+", "mu-two, then a local search", plan_by<mu_two_plus>, Division::pairs_or_alone,
       plan_by<first_fit_of_search>},
      {"optimal", "the least time of all plans (small graphs)", optimal, Division::pairs_or_alone,
       first_fit_of_optimal},
  };
  return table;
}

const MemoryPolicy& memory_policy(std::string_view name) {
  return row_named(name, memory_policies(), "memory policy");
}

MemoryResult plan_memory(const MemoryProblem& problem, std::int64_t limit, const MemoryPolicy& policy) {
  MemoryResult result{policy.make(problem, limit), false, {}};
  result.feasible = result.best.cost.peak_bytes <= limit;
  if (result.feasible) return result;
  // A plan for a larger limit can have a larger peak.
  const auto make = policy.first_fit ? policy.first_fit : policy.make;
  const auto peak_at = [&](std::int64_t bytes) { return make(problem, bytes).cost.peak_bytes; };
  std::int64_t least = limit, most = result.best.cost.peak_bytes;
  try {
    for (std::int64_t peak = peak_at(most); peak > most; peak = peak_at(most))
      least = std::exchange(most, peak);
    while (least + std::max<std::int64_t>(1, most / 1000) < most) {
      const std::int64_t middle = least + (most - least) / 2;
      (peak_at(middle) <= middle ? most : least) = middle;
    }
    if (const std::int64_t peak = peak_at(most); peak > limit && peak_at(peak) <= peak) most = peak;
  } catch (const Error&) {  // a search for the optimum gives up: this limit is the smallest that was found
  }
  result.minimum_bytes = most;
  return result;
}

}  // namespace tandem::engine
