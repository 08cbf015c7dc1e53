// No program of memory is faster than the optimal plan, and there is none if it finds none: an exhaustive
// search tries them all.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/memory/memory_planner.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/memory/optimal_plan.h>

#include "drawn_memory_problem.h"
#include "written_memory_problem.h"

namespace tandem::testing {
using namespace engine;
namespace {

using Kind = MemoryValue::Kind;

// Where a program is: everything on which what may follow depends. Times count from now.
struct State {
  int ran[2] = {};  // nodes of each graph
  std::vector<bool> there, host, updated;
  std::vector<int> copy;  // per value: none, to the host, from it
  std::vector<double> end;
  double channel[2] = {};
  auto operator<=>(const State&) const = default;
};

// Dijkstra's algorithm over all states of the programs of a graph or a pair. What one instruction does is
// what the format says. But memory is allocated only where it is filled, since earlier would only take room,
// and values are freed only for what needs their room, no more of them than it takes.
class Exhaustive {
 public:
  Exhaustive(const MemoryProblem& p, std::int64_t limit, double bound, bool copies = true)
      : p_(p), limit_(limit), bound_(bound), copies_(copies) {}

  // Returns the time of a program that takes less than the bound; infinite if there is none.
  double run() {
    start_.there = start_.host = start_.updated = std::vector<bool>(p_.values.size());
    start_.copy.assign(p_.values.size(), 0);
    start_.end.assign(p_.values.size(), 0);
    for (std::size_t v = 0; v < p_.values.size(); ++v) start_.there[v] = p_.values[v].kind == Kind::input;
    std::vector<int> wrapped;  // values of a pair's first forward, in any place at the start
    for (const MemoryNode& n : p_.graphs[0].nodes)
      if (p_.is_ring() && n.phase == Phase::forward)
        for (const int v : n.outputs)
          if (kind(v) == Kind::intermediate) wrapped.push_back(v);
    return from_starts(wrapped);
  }

 private:
  // The least of all ways in which these values can be at the start.
  double from_starts(std::vector<int> wrapped) {
    if (wrapped.empty()) return from_start();
    const std::size_t v = index(wrapped.back());
    wrapped.pop_back();
    double least = std::numeric_limits<double>::infinity();
    for (const bool there : {false, true})
      for (const bool host : {false, true}) {
        start_.there[v] = there;
        start_.host[v] = host;
        least = std::min(least, from_starts(wrapped));
      }
    return least;
  }
  double from_start() {
    best_.clear();
    queue_ = {};
    reach(start_, 0);
    while (!queue_.empty()) {
      const auto [time, next] = queue_.top();
      queue_.pop();
      if (best_.at(next) < time) continue;
      if (is_end(next)) return time;
      expand(next, time);
    }
    return std::numeric_limits<double>::infinity();
  }

  static std::size_t index(int v) { return static_cast<std::size_t>(v); }
  Kind kind(int v) const { return p_.values[index(v)].kind; }
  const std::vector<MemoryNode>& nodes(int g) const { return p_.graphs[index(g)].nodes; }
  int graphs() const { return static_cast<int>(std::ssize(p_.graphs)); }
  bool wraps(int g) const { return p_.is_ring() && g == 0; }
  bool has_run(const State& s, int g) const { return s.ran[g] == std::ssize(nodes(g)); }
  // The node of a graph that runs next. A pair's first graph begins with its backward.
  int next_node(const State& s, int g) const {
    const int first = wraps(g) ? p_.graphs[0].forward_nodes() : 0;
    return (first + s.ran[g]) % static_cast<int>(std::ssize(nodes(g)));
  }
  std::int64_t live(const State& s) const {
    std::int64_t bytes = p_.static_bytes;
    for (std::size_t v = 0; v < p_.values.size(); ++v) bytes += s.there[v] ? p_.values[v].bytes : 0;
    return bytes;
  }

  bool is_end(const State& s) const {
    for (int g = 0; g < graphs(); ++g)
      if (!has_run(s, g)) return false;
    for (std::size_t v = 0; v < p_.values.size(); ++v) {
      if (s.copy[v] != 0 || (p_.values[v].kind == Kind::output && !s.there[v])) return false;
      if (p_.is_ring() && ((start_.there[v] && !s.there[v]) || (start_.host[v] && !s.host[v]))) return false;
    }
    return true;  // what else is there can be freed at no cost
  }

  double left_ms(const State& s) const {
    double ms = 0;
    for (int g = 0; g < graphs(); ++g)
      for (State later = s; !has_run(later, g); ++later.ran[g])
        ms += nodes(g)[index(next_node(later, g))].run_ms;
    return ms;
  }

  // Frees as little as there is room for `need` more bytes, in all ways, none of `stay`.
  template <class F>
  void with_room(const State& s, std::int64_t need, const std::vector<int>& stay, const F& act, int v = 0) {
    if (live(s) + need <= limit_) return act(s);
    for (; v < std::ssize(p_.values); ++v) {
      const bool may =
          s.there[index(v)] && s.copy[index(v)] == 0 && !(p_.is_ring() && kind(v) == Kind::input);
      if (!may || std::ranges::find(stay, v) != stay.end()) continue;
      State without = s;
      without.there[index(v)] = false;
      with_room(without, need, stay, act, v + 1);
    }
  }

  void reach(State s, double time, double passed = 0) {
    if (live(s) > limit_ || time + passed + left_ms(s) > bound_) return;
    const auto later = [&](double t) { return std::max(0.0, std::round((t - passed) * 1e7) / 1e7); };
    for (double& c : s.channel) c = later(c);
    for (std::size_t v = 0; v < s.end.size(); ++v) s.end[v] = s.copy[v] != 0 ? later(s.end[v]) : 0;
    const auto [at, fresh] = best_.try_emplace(s, time + passed);
    if (!fresh && at->second <= time + passed) return;
    at->second = time + passed;
    queue_.emplace(time + passed, std::move(s));
  }

  bool can_read(const State& s, int v) const {
    return kind(v) == Kind::parameter || (s.there[index(v)] && s.copy[index(v)] == 0);
  }
  void compute(const State& s, double time, int g, int i, bool again) {
    const MemoryNode& n = nodes(g)[index(i)];
    std::vector<int> stay = n.inputs;
    std::int64_t need = n.workspace_bytes;
    for (const int v : n.inputs)
      if (!can_read(s, v) || (again && s.updated[index(v)])) return;
    for (const int v : n.outputs) {
      if (s.copy[index(v)] != 0 || (again && kind(v) != Kind::intermediate)) return;
      if (!s.there[index(v)]) need += p_.values[index(v)].bytes;
      stay.push_back(v);
    }
    with_room(s, need, stay, [&](State next) {
      for (const int v : n.outputs) {
        next.there[index(v)] = true;
        if (!again) next.host[index(v)] = false;
      }
      for (const int v : n.inputs)
        if (n.phase == Phase::update && kind(v) == Kind::parameter) next.updated[index(v)] = true;
      if (!again) ++next.ran[g];
      reach(std::move(next), time, n.run_ms);
    });
  }

  void expand(const State& s, double time) {
    for (int g = 0; g < graphs(); ++g) {
      if (!has_run(s, g)) compute(s, time, g, next_node(s, g), false);
      for (int i = 0; i < p_.graphs[index(g)].forward_nodes(); ++i)
        if (wraps(g) || i < s.ran[g]) compute(s, time, g, i, true);
    }
    for (int v = 0; v < std::ssize(p_.values); ++v) {
      const auto at = index(v);
      if (s.copy[at] != 0) {
        State next = s;
        if (s.copy[at] == 1) next.host[at] = true;
        next.copy[at] = 0;
        reach(std::move(next), time, s.end[at]);
        continue;
      }
      if (!copies_ || kind(v) != Kind::intermediate || s.there[at] == s.host[at]) continue;
      with_room(s, s.there[at] ? 0 : p_.values[at].bytes, {v}, [&](State next) {
        double& channel = next.channel[s.host[at] && p_.link.duplex ? 1 : 0];
        next.end[at] = channel = channel + p_.copy_ms(v);
        next.copy[at] = s.host[at] ? 2 : 1;
        next.there[at] = true;
        reach(std::move(next), time);
      });
    }
  }

  const MemoryProblem& p_;
  const std::int64_t limit_;
  const double bound_;
  const bool copies_;
  State start_;
  std::map<State, double> best_;
  using Entry = std::pair<double, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// Two graphs of two layers and nothing else: more would have too many programs.
MemoryProblem small_pair(std::mt19937_64& rng) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  MemoryProblem p{{}, {}, {.bytes_per_ms = 1.0 * draw(5, 40), .duplex = draw(0, 2) > 0}, 0};
  for (int g = 0; g < 2; ++g) {
    const auto value = [&](Kind kind) {
      p.values.push_back({std::ssize(p.values), draw(10, 60), kind});
      return static_cast<int>(std::ssize(p.values)) - 1;
    };
    const int x = value(Kind::input), a = value(Kind::intermediate), b = value(Kind::intermediate),
              gradient = value(Kind::intermediate);
    p.graphs.push_back({"g" + std::to_string(g),
                        {{"A", Phase::forward, 1.0 * draw(1, 5), 0, {x}, {a}},
                         {"B", Phase::forward, 1.0 * draw(1, 5), 0, {a}, {b}},
                         {"dB", Phase::backward, 1.0 * draw(1, 9), 0, {b}, {gradient}},
                         {"dA", Phase::backward, 1.0 * draw(1, 9), 0, {x, a, gradient}, {}}}});
  }
  return p;
}

// Under the smallest of some limits that there is a plan for, and the one before, for which there is none.
TEST(OptimalPlan, IsNotSlowerThanAnyProgram) {
  const double never = std::numeric_limits<double>::infinity();
  std::mt19937_64 rng(5);                     // always the same: the time that the search takes differs much
  std::array<int, 2> slower{}, impossible{};  // of graphs, of pairs
  for (int i = 0; i < 40 + 12; ++i) {
    SCOPED_TRACE(i);
    const bool is_pair = i >= 40, copies = i % 4 != 3;
    MemoryProblem p = is_pair ? small_pair(rng) : drawn_problem(rng, 1, 2);
    const CostedPlan whole = *plan_of(p, retain_all(p), 1'000'000);
    const auto limit = [&](int share) {
      return p.static_bytes + (whole.cost.peak_bytes - p.static_bytes) * share / 20;
    };
    int share = 10;
    std::optional<CostedPlan> plan;
    while (!(plan = optimal_plan(p, limit(share), copies))) ++share;
    if (share == 20 || (!is_pair && p.values.size() > 13)) continue;  // trivial, or too many
    EXPECT_EQ(never, Exhaustive(p, limit(share), plan->cost.time_ms - 1e-5, copies).run());
    slower[is_pair] += plan->cost.time_ms > whole.cost.time_ms + 1e-5;
    if (share == 10) continue;
    p.link.bytes_per_ms = 1e300;  // time does not matter
    EXPECT_EQ(never, Exhaustive(p, limit(share - 1), never, copies).run());
    ++impossible[is_pair];
  }
  for (const bool is_pair : {false, true}) {
    EXPECT_GT(slower[is_pair], 3);
    EXPECT_GT(impossible[is_pair], 3);
  }
}

// What forward alone reads can be computed again while its source is there, although nothing reads it soon.
TEST(OptimalPlan, ComputesAgainBeforeTheSourceHasToGo) {
  WrittenProblem g;
  const int x = g.value(1, Kind::input), s = g.value(10), q = g.value(5), c = g.value(1), d = g.value(1),
            e = g.value(1);
  g.graph("graph");
  g.node("A", Phase::forward, 100, {x}, {s});
  g.node("B", Phase::forward, 1, {s}, {q});
  g.node("C", Phase::forward, 1, {s}, {c}, 86);
  g.node("D", Phase::forward, 1, {c}, {d}, 90);
  g.node("E", Phase::forward, 1, {q, d}, {e});
  g.node("dE", Phase::backward, 1, {e}, {});
  // q does not fit beside s and C, nor s beside D. But s makes q again after C, and can go then.
  const auto plan = optimal_plan(g.problem, 100, /*copies=*/false);
  ASSERT_TRUE(plan);
  EXPECT_DOUBLE_EQ(1, plan->cost.recompute_ms);
  EXPECT_EQ(std::numeric_limits<double>::infinity(),
            Exhaustive(g.problem, 100, plan->cost.time_ms - 1e-5, /*copies=*/false).run());
}

// A source that only forward reads can cross from one period to the next.
TEST(OptimalPlan, KeepsASourceForThePeriodAfter) {
  WrittenProblem g;
  for (const char* name : {"first", "second"}) {
    const int x = g.value(1, Kind::input), s = g.value(10), q = g.value(50), c = g.value(1), dc = g.value(1);
    g.graph(name);
    g.node("A", Phase::forward, 100, {x}, {s});
    g.node("B", Phase::forward, 1, {s}, {q});
    g.node("C", Phase::forward, 1, {q}, {c});
    g.node("dC", Phase::backward, 1, {c}, {dc}, 45);
    g.node("dB", Phase::backward, 1, {q, dc}, {});
  }
  // In each graph q does not fit beside dC, and s does.
  const auto plan = optimal_plan(g.problem, 80, /*copies=*/false);
  ASSERT_TRUE(plan);
  EXPECT_DOUBLE_EQ(2, plan->cost.recompute_ms);
}

// The repeat of u comes before the copy of its source, and both before N, beside which an older copy ends.
TEST(OptimalPlan, ComputesAgainBeforeTheSourceMovesToTheHost) {
  WrittenProblem g;
  g.problem.link.bytes_per_ms = 1;
  const int x = g.value(1, Kind::input), s = g.value(5), u = g.value(100), y = g.value(15), f = g.value(1),
            n = g.value(1), m = g.value(1);
  g.graph("graph");
  g.node("S", Phase::forward, 1000, {x}, {s});
  g.node("U", Phase::forward, 5, {s}, {u});
  g.node("Y", Phase::forward, 1000, {s, x}, {y}, 150);
  g.node("F", Phase::forward, 10, {s}, {f}, 150);
  g.node("N", Phase::forward, 5, {f}, {n});
  g.node("M", Phase::forward, 1, {u, n}, {m}, 95);
  g.node("dM", Phase::backward, 1, {m, s, y}, {});
  const auto plan = optimal_plan(g.problem, 200, /*copies=*/true);
  ASSERT_TRUE(plan);
  EXPECT_EQ(std::numeric_limits<double>::infinity(),
            Exhaustive(g.problem, 200, plan->cost.time_ms - 1e-5).run());
}

// What is too large for trying all programs is at least not slower than any other policy's plan.
TEST(OptimalPlan, OfFiveLayersIsNotSlowerThanOtherPlans) {
  std::mt19937_64 rng(8);
  int faster = 0;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const MemoryProblem p = drawn_problem(rng, 1, 5);
    const std::int64_t whole = plan_of(p, retain_all(p), 1'000'000)->cost.peak_bytes,
                       limit = p.static_bytes + (whole - p.static_bytes) * (12 + i % 4 * 2) / 20;
    const CostedPlan best = memory_policy("optimal").make(p, limit),
                     searched = memory_policy("mu-two+").make(p, limit);
    EXPECT_EQ(searched.cost.peak_bytes <= limit, best.cost.peak_bytes <= limit);
    EXPECT_LE(best.cost.time_ms, searched.cost.time_ms + 1e-9);
    EXPECT_DOUBLE_EQ(best.cost.time_ms, replay(p, best.plan).time_ms);
    faster += best.cost.time_ms < searched.cost.time_ms - 1e-6;
  }
  EXPECT_GT(faster, 0);
}

// The search itself finds what the optimal plan takes, and nothing below it.
TEST(OptimalPlan, IsOneOfThePrograms) {
  std::mt19937_64 rng(6);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const bool is_pair = i >= 8, copies = i % 3 != 2;
    const MemoryProblem p = is_pair ? small_pair(rng) : drawn_problem(rng, 1, 1 + i % 2);
    const std::int64_t whole = plan_of(p, retain_all(p), 1'000'000)->cost.peak_bytes;
    std::optional<CostedPlan> plan;
    for (int share = 10; !plan; ++share)
      plan = optimal_plan(p, p.static_bytes + (whole - p.static_bytes) * share / 20, copies);
    EXPECT_NEAR(plan->cost.time_ms,
                Exhaustive(p, plan->cost.peak_bytes, plan->cost.time_ms + 1e-5, copies).run(), 1e-5);
  }
}

}  // namespace
}  // namespace tandem::testing
