// Plans of memory: instruction lists that an independent interpreter replays.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include <tandem/core/base/contains.h>
#include <tandem/memory/lifetimes.h>
#include <tandem/memory/memory_explanation.h>
#include <tandem/memory/memory_machine.h>
#include <tandem/memory/memory_planner.h>
#include <tandem/memory/memory_policies.h>

#include "drawn_memory_problem.h"
#include "expect_error.h"
#include "memory_interpreter.h"
#include "seed.h"
#include "temporary_directory.h"

namespace tandem::testing {
using namespace engine;
namespace {

using Kind = MemoryValue::Kind;
using Step = MemoryStep::Kind;

MemoryDecisions drawn_decisions(const MemoryProblem& p, std::mt19937_64& rng) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  MemoryDecisions d = retain_all(p);
  for (Treatment& t : d.values) {
    t = static_cast<Treatment>(draw(0, 5));
    if (t == Treatment::swap && !p.can_copy()) t = Treatment::retain;
  }
  for (auto& before : d.forward_before)
    for (std::size_t b = 1; b < before.size(); ++b) before[b] = before[b - 1] + draw(0, 1);
  return d;
}

TEST(MemoryPlan, DrawnDecisionsGivePlansThatReplay) {
  auto rng = generator("memory plans");
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  int plans = 0;
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE(i);
    const MemoryProblem p = drawn_problem(rng, 1 + i % 4, draw(1, 9));
    const MemoryDecisions d = drawn_decisions(p, rng);
    const auto plan = plan_of(p, d, draw(50, 800));
    if (!plan) continue;  // a node would be repeated with other weights
    ++plans;
    expect_replays(p, *plan);
  }
  EXPECT_GT(plans, 400);
}

// With a bound, plan_of returns the same plan where that ranks below, and nothing elsewhere.
TEST(MemoryPlan, ABoundDecidesWhetherThereIsAPlanAndNotWhich) {
  auto rng = generator("bounds of plans");
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  int found = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    SCOPED_TRACE(i);
    MemoryProblem p = drawn_problem(rng, 1 + i % 4, draw(1, 9));
    if (i % 2 == 0) p.link = {};
    const MemoryDecisions d = drawn_decisions(p, rng);
    const std::int64_t limit = draw(50, 800);
    const auto plan = plan_of(p, d, limit);
    if (!plan) continue;
    const PlanRank rank = rank_of(plan->cost, limit);
    const PlanRank later{rank.first, std::nextafter(rank.second, kWorst.second)},
        drawn{rank.first + draw(-20, 20), rank.second * draw(0, 4) / 2};
    for (const PlanRank& bound : {rank, later, drawn}) {
      const auto bounded = plan_of(p, d, limit, bound);
      ASSERT_EQ(rank < bound, bounded.has_value());
      ++(bounded ? found : refused);
      if (bounded) {
        EXPECT_EQ(plan->plan.steps, bounded->plan.steps);
      }
    }
  }
  EXPECT_GT(found, 400);
  EXPECT_GT(refused, 400);
}

// What a planner has made before does not show in its next plan.
TEST(MemoryPlan, APlannerOfManyPlansMakesTheSame) {
  auto rng = generator("plans of one planner");
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  int found = 0, refused = 0;
  for (int i = 0; i < 60; ++i) {
    const MemoryProblem p = drawn_problem(rng, 1 + i % 4, draw(1, 9));
    MemoryPlanner planner(p);
    for (int k = 0; k < 20; ++k) {
      SCOPED_TRACE(::testing::Message() << i << ", " << k);
      const MemoryDecisions d = drawn_decisions(p, rng);
      const std::int64_t limit = draw(50, 800);
      const PlanRank bound = k % 3 == 0 ? kWorst : PlanRank{draw(0, 200), draw(1, 200)};
      const auto alone = plan_of(p, d, limit, bound), plan = planner.plan(d, limit, bound);
      ASSERT_EQ(alone.has_value(), plan.has_value());
      ++(plan ? found : refused);
      if (!plan) continue;
      EXPECT_EQ(alone->plan.steps, plan->plan.steps);
      EXPECT_EQ(alone->plan.resident_at_start, plan->plan.resident_at_start);
      EXPECT_EQ(alone->plan.host_at_start, plan->plan.host_at_start);
      EXPECT_EQ(alone->cost.peak_bytes, plan->cost.peak_bytes);
      EXPECT_EQ(alone->cost.time_ms, plan->cost.time_ms);
    }
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(refused, 200);
}

// While an instruction is carried out, the host has the values whose next copy comes from there, and those
// under copy.
TEST(MemoryPlan, TheHostKeepsWhatIsCopiedBackLater) {
  auto rng = generator("host peaks");
  std::int64_t most = 0;
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const MemoryProblem p = drawn_problem(rng, 1 + i % 3, 1 + i % 7);
    const MemoryPlan plan = memory_policy(i % 2 == 0 ? "vdnn" : "capuchin").make(p, p.static_bytes).plan;
    std::int64_t peak = 0;
    for (auto at = plan.steps.begin(); at != plan.steps.end(); ++at) {
      std::int64_t now = 0;
      for (int v = 0; v < std::ssize(p.values); ++v) {
        const auto is_copy = [&](const MemoryStep& s) {
          return s.value == v && (s.kind == Step::d2h || s.kind == Step::h2d);
        };
        const auto is_copy_or_wait = [&](const MemoryStep& s) {
          return is_copy(s) || (s.value == v && s.kind == Step::wait);
        };
        const auto next = std::find_if(at, plan.steps.end(), is_copy),
                   until = std::find_if(at, plan.steps.end(), is_copy_or_wait);
        const bool is_kept = std::ranges::count(plan.host_at_start, v) > 0,
                   is_fetched = next == plan.steps.end() ? is_kept : next->kind == Step::h2d,
                   is_under_copy = until != plan.steps.end() && (until->kind == Step::wait || until == at);
        if (is_fetched || is_under_copy) now += p.values[static_cast<std::size_t>(v)].bytes;
      }
      peak = std::max(peak, now);
    }
    EXPECT_EQ(peak, host_peak(p, plan));
    most = std::max(most, peak);
  }
  EXPECT_GT(most, 100);
}

// Two arrays of models in one step: the second one's forward comes after the first one's updates.
TEST(MemoryPlan, AGraphMayHaveForwardAfterBackward) {
  auto rng = generator("in turn");
  const TemporaryDirectory directory;
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    MemoryProblem p = drawn_problem(rng, 2, 1 + i % 2);
    auto& nodes = p.graphs[0].nodes;
    nodes.insert(nodes.end(), p.graphs[1].nodes.begin(), p.graphs[1].nodes.end());
    p.graphs.pop_back();
    std::ofstream(directory.file("problem.json")) << to_json(p);
    const MemoryProblem read = read_memory_problem(directory.file("problem.json"));
    const std::int64_t all = memory_policy("none").make(read, 0).cost.peak_bytes, limit = all * 8 / 10;
    for (const MemoryPolicy& policy : memory_policies()) {
      if (policy.name == "optimal" && i > 1) continue;  // it takes seconds
      SCOPED_TRACE(policy.name);
      const MemoryResult result = plan_memory(read, limit, policy);
      expect_replays(read, result.best);
      if (result.feasible) {
        EXPECT_LE(result.best.cost.peak_bytes, limit);
      }
    }
  }
}

// It would have to come back, or be computed again, for forward.
TEST(MemoryPlan, ForwardMayNotReadWhatBackwardHasRead) {
  const MemoryProblem p{.graphs = {{"g",
                                    {{"F1", Phase::forward, 1, 0, {0}, {1}},
                                     {"B1", Phase::backward, 1, 0, {1}, {2}},
                                     {"F2", Phase::forward, 1, 0, {1}, {3}}}}},
                        .values = {{10, 8, Kind::input},
                                   {11, 8, Kind::intermediate},
                                   {12, 8, Kind::gradient},
                                   {13, 8, Kind::output}},
                        .link = {},
                        .static_bytes = 0};
  const TemporaryDirectory directory;
  std::ofstream(directory.file("problem.json")) << to_json(p);
  expect_error([&] { read_memory_problem(directory.file("problem.json")); },
               {"forward node 'F2' reads value 11 after nodes of backward or update"});
}

TEST(MemoryPlan, PoliciesKeepTheLimitOrSayWhatTheyNeed) {
  auto rng = generator("memory policies");
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    const MemoryProblem p = drawn_problem(rng, 1 + i % 3, 3 + i % 5);
    const CostedPlan whole = memory_policy("none").make(p, 1'000'000);
    EXPECT_EQ(0, whole.cost.stall_ms);
    EXPECT_EQ(0, whole.cost.recompute_ms);
    const std::int64_t limit = p.static_bytes + (whole.cost.peak_bytes - p.static_bytes) * 7 / 10;
    std::map<std::string_view, MemoryResult> results;
    for (const MemoryPolicy& policy : memory_policies()) {
      if (policy.name == "optimal" || policy.name == "checkmate") continue;
      SCOPED_TRACE(policy.name);
      const MemoryResult r = plan_memory(p, limit, policy);
      expect_replays(p, r.best);
      EXPECT_EQ(r.feasible, r.best.cost.peak_bytes <= limit);
      EXPECT_EQ(r.feasible, !r.minimum_bytes);
      EXPECT_GE(r.best.cost.time_ms, whole.cost.time_ms - 1e-9);
      if (r.minimum_bytes) {
        EXPECT_GT(*r.minimum_bytes, limit);
        EXPECT_LE(policy.make(p, *r.minimum_bytes).cost.peak_bytes, *r.minimum_bytes);
      }
      results.emplace(policy.name, r);
    }
    for (const auto& [name, r] : results)
      if (r.feasible && name != "none") {
        EXPECT_TRUE(results.at("mu-two+").feasible) << name;
      }
    if (results.at("mu-two").feasible) {
      EXPECT_LE(results.at("mu-two+").best.cost.time_ms, results.at("mu-two").best.cost.time_ms);
    }
  }
}

TEST(MemoryPlan, ListsAreCarriedOutAndNothingElseIs) {
  auto rng = generator("lists of swaps and recomputes");
  int plans = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    MemoryProblem p = drawn_problem(rng, 1 + i % 3, 2 + i % 6);
    auto& [swap, recompute] = p.lists;
    for (const int v : candidates_of(p))
      if (const int drawn = std::uniform_int_distribution(0, 2)(rng); drawn > 0)
        (drawn == 1 ? swap : recompute).push_back(v);
    try {
      const CostedPlan made = memory_policy("lists").make(p, 400);
      expect_replays(p, made);
      const auto [swapped, recomputed] = evicted_by(p, made.plan);
      for (const int v : swapped) EXPECT_TRUE(contains(swap, v)) << v;
      for (const int v : recompute) EXPECT_TRUE(recomputed.contains(v)) << v;
      for (const int v : swap)  // its node may be repeated for others
        EXPECT_TRUE(swapped.contains(v) || recomputed.contains(v)) << v;
      ++plans;
    } catch (const Error& e) {  // the weight that makes it is updated before
      expect_words(e.what(), {"the lists recompute value", "which cannot be computed again"});
    }
  }
  EXPECT_GT(plans, 100);
}

// No decisions give a plan that is faster than the optimal one. With a link that moves nothing in time, the
// optimal plan copies nothing.
TEST(MemoryPlan, NoPlanIsFasterThanTheOptimalOne) {
  std::mt19937_64 rng(3);  // always the same: the time that the search takes differs much
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    MemoryProblem p = drawn_problem(rng, 1, 1 + i % 3);
    if (i % 4 == 3) p.link.bytes_per_ms = 1e-3;
    const std::int64_t whole = memory_policy("none").make(p, 1'000'000).cost.peak_bytes;
    const std::int64_t limit = p.static_bytes + (whole - p.static_bytes) * (6 + i % 4) / 10;
    const CostedPlan best = memory_policy("optimal").make(p, limit),
                     computed = memory_policy("checkmate").make(p, limit);
    expect_replays(p, best);
    expect_replays(p, computed);
    const bool feasible = best.cost.peak_bytes <= limit;
    if (computed.cost.peak_bytes <= limit) {
      EXPECT_LE(best.cost.time_ms, computed.cost.time_ms + 1e-9);
      EXPECT_EQ(0, std::ranges::count(computed.plan.steps, Step::d2h, &MemoryStep::kind));
      if (i % 4 == 3) {
        EXPECT_DOUBLE_EQ(best.cost.time_ms, computed.cost.time_ms);
      }
    }
    const std::vector<int> candidates = candidates_of(p);
    MemoryDecisions d = retain_all(p);
    const auto try_all = [&](const auto& self, std::size_t k) -> void {
      if (k < candidates.size() && k < 6) {
        for (int t = 0; t < 4; ++t) {
          d.values[static_cast<std::size_t>(candidates[k])] = static_cast<Treatment>(t);
          self(self, k + 1);
        }
        return;
      }
      const auto plan = plan_of(p, d, limit);
      if (!plan || plan->cost.peak_bytes > limit) return;
      EXPECT_TRUE(feasible);
      EXPECT_GE(plan->cost.time_ms, best.cost.time_ms - 1e-9);
    };
    try_all(try_all, 0);
  }
}

TEST(MemoryPlan, OptimalPlansOfLargeGraphsAreRefused) {
  auto rng = generator("large graphs");
  const MemoryProblem long_chain = drawn_problem(rng, 1, 40), ring = drawn_problem(rng, 3, 1);
  expect_error([&] { memory_policy("optimal").make(long_chain, 500); }, {"at most 64 values"});
  for (const char* policy : {"optimal", "checkmate"})
    expect_error([&] { memory_policy(policy).make(ring, 500); }, {"one graph or a pair", "has 3 graphs"});
}

TEST(MemoryPlan, AChainOfAHundredThousandNodesIsRepeated) {
  auto rng = generator("long chain");
  const MemoryProblem p = drawn_problem(rng, 1, 100'000);
  MemoryDecisions d = retain_all(p);
  const std::vector<int> candidates = candidates_of(p);
  for (const int v : candidates) d.values[static_cast<std::size_t>(v)] = Treatment::recompute_and_keep;
  const auto plan = plan_of(p, d, 0);
  ASSERT_TRUE(plan);
  EXPECT_GE(std::ranges::count(plan->plan.steps, Step::recompute, &MemoryStep::kind), 99'999);
  EXPECT_GE(Lifetimes(p).recompute_ms(candidates.back(), d.values), 0.1 * 99'999);
}

// An instruction or a value at the start too few, too many, or another one.
void change(MemoryPlan& plan, const MemoryProblem& p, std::mt19937_64& rng) {
  const auto draw = [&](auto count) {
    return static_cast<std::ptrdiff_t>(std::uniform_int_distribution<std::int64_t>(0, count - 1)(rng));
  };
  const auto at = plan.steps.begin() + draw(std::ssize(plan.steps));
  const int value = static_cast<int>(draw(std::ssize(p.values)));
  switch (draw(8)) {
    case 0: plan.steps.erase(at); break;
    case 1: plan.steps.insert(plan.steps.begin() + draw(std::ssize(plan.steps)), MemoryStep(*at)); break;
    case 2: std::iter_swap(at, plan.steps.begin() + draw(std::ssize(plan.steps))); break;
    case 3: (at->value >= 0 ? at->value : at->node) = at->value >= 0 ? value : 0; break;
    case 4: {
      constexpr Step kOfValues[] = {Step::alloc, Step::free, Step::d2h, Step::h2d, Step::wait};
      at->kind = at->value >= 0 ? kOfValues[draw(5)] : draw(2) == 0 ? Step::run : Step::recompute;
      break;
    }
    case 5: plan.steps.insert(at, {draw(2) == 0 ? Step::d2h : Step::h2d, value}); break;
    default: {
      auto& start = draw(2) == 0 ? plan.resident_at_start : plan.host_at_start;
      if (const auto found = std::ranges::find(start, value); found != start.end())
        start.erase(found);
      else if (draw(2) == 0 || start.empty())
        start.push_back(value);
      else
        start.pop_back();
    }
  }
}

TEST(MemoryPlan, ReplayAndTheInterpreterRefuseTheSamePlans) {
  auto rng = generator("changed plans");
  int refused = 0, accepted = 0;
  for (int i = 0; i < 120; ++i) {
    const MemoryProblem p = drawn_problem(rng, 1 + i % 3, 1 + i % 4);
    const CostedPlan good = memory_policy(i % 2 == 0 ? "vdnn" : "capuchin").make(p, p.static_bytes);
    for (int k = 0; k < 100; ++k) {
      SCOPED_TRACE(::testing::Message() << "plan " << i << ", change " << k);
      MemoryPlan plan = good.plan;
      for (int changes = 0; changes <= k % 3; ++changes) change(plan, p, rng);
      const std::string why = message_of([&] { replay(p, plan); }),
                        other = message_of([&] { interpreted(p, plan); });
      EXPECT_EQ(why.empty(), other.empty()) << "replay: " << why << "; the interpreter: " << other;
      (why.empty() ? accepted : refused) += 1;
      if (why.empty() && other.empty()) expect_replays(p, {plan, replay(p, plan)});
    }
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refused, 3000);
}

TEST(MemoryPlan, WrongInstructionsAreNamed) {
  auto rng = generator("wrong instructions");
  const MemoryProblem p = drawn_problem(rng, 1, 3);
  const MemoryPlan good = memory_policy("vdnn").make(p, 0).plan;
  const auto first = [&](Step kind) {
    return std::ranges::find(good.steps, kind, &MemoryStep::kind) - good.steps.begin();
  };
  const auto without = [&](std::ptrdiff_t at) {
    MemoryPlan plan = good;
    plan.steps.erase(plan.steps.begin() + at);
    return plan;
  };
  expect_error([&] { replay(p, without(first(Step::alloc))); }, {"run 'F0'", "has no memory"});
  expect_error([&] { replay(p, without(first(Step::d2h))); }, {"wait", "never copied"});
  expect_error([&] { replay(p, without(first(Step::wait))); }, {"free", "under copy"});
  expect_error([&] { replay(p, without(first(Step::h2d))); }, {"undefined"});
  MemoryPlan twice = good;
  twice.steps.insert(twice.steps.begin() + first(Step::run),
                     twice.steps[static_cast<std::size_t>(first(Step::run))]);
  expect_error([&] { replay(p, twice); }, {"run 'F0'", "the next node of its graph is 'F1'"});
  MemoryPlan shorter = good;
  while (shorter.steps.back().kind != Step::run) shorter.steps.pop_back();
  shorter.steps.pop_back();
  expect_error([&] { replay(p, shorter); }, {"node 'update' of graph 'g0' has not run"});
}

}  // namespace
}  // namespace tandem::testing
