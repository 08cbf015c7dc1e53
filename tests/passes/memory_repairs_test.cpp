// μ-TWO's algorithms as they are repaired here (docs/decisions.md), one test for each repair, on graphs small
// enough for a pencil.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include <tandem/memory/memory_planner.h>
#include <tandem/memory/memory_policies.h>

#include "written_memory_problem.h"

namespace tandem::testing {
using namespace engine;
namespace {

using Kind = MemoryValue::Kind;
using Step = MemoryStep::Kind;
constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max() / 2;

constexpr Phase kForward = Phase::forward, kBackward = Phase::backward, kUpdate = Phase::update;

// x -> a -> b -> c -> loss; the backward of each layer reads what the layer read.
struct Chain : WrittenProblem {
  int x, w, a, b, c, loss, dc, db, da;
  Chain() {
    x = value(10, Kind::input);
    w = value(10, Kind::parameter);
    a = value(100), b = value(100), c = value(100);
    loss = value(1, Kind::output);
    dc = value(10), db = value(10), da = value(10);
    graph("chain");
    node("A", kForward, 1, {x, w}, {a});
    node("B", kForward, 2, {a}, {b});
    node("C", kForward, 4, {b}, {c});
    node("loss", kForward, 1, {c}, {loss});
    node("dC", kBackward, 8, {b, c}, {dc});
    node("dB", kBackward, 8, {a, dc}, {db});
    node("dA", kBackward, 8, {x, db}, {da});
    node("update", kUpdate, 1, {da, w}, {});
  }
  MemoryDecisions with(std::vector<std::pair<int, Treatment>> treated) const {
    MemoryDecisions d = retain_all(problem);
    for (const auto& [v, t] : treated) d.values[static_cast<std::size_t>(v)] = t;
    return d;
  }
};

std::ptrdiff_t place(const MemoryPlan& plan, const MemoryStep& step) {
  return std::ranges::find(plan.steps, step) - plan.steps.begin();
}
MemoryStep of_node(Step kind, int node) { return {kind, -1, 0, node}; }

// The graph of a problem twice, as a pair.
MemoryProblem pair_of(const MemoryProblem& one) {
  MemoryProblem pair = one;
  const int shift = static_cast<int>(std::ssize(one.values));
  for (MemoryValue v : one.values) {
    v.id += shift;
    pair.values.push_back(v);
  }
  pair.graphs.push_back(one.graphs[0]);
  for (MemoryNode& n : pair.graphs[1].nodes)
    for (auto* values : {&n.inputs, &n.outputs})
      for (int& v : *values) v += shift;
  return pair;
}

// "Candidates": made in forward and read in backward; with no reader in forward they rest from their producer
// on.
TEST(MemoryRepairs, CandidatesAreMadeInForwardAndReadInBackward) {
  Chain g;
  const int mask = g.value(50);
  g.problem.graphs[0].nodes[1].outputs.push_back(mask);  // of B, which only backward reads
  g.problem.graphs[0].nodes[5].inputs.push_back(mask);
  EXPECT_EQ((std::vector<int>{g.a, g.b, mask, g.c}), candidates_of(g.problem));
  const auto plan = plan_of(g.problem, g.with({{mask, Treatment::swap}}), kAny);
  ASSERT_TRUE(plan);
  EXPECT_EQ(place(plan->plan, of_node(Step::run, 1)) + 1, place(plan->plan, {Step::d2h, mask}))
      << "it leaves where it is made";
}

// Alg. B, line 20: a swapped value must be back for the first recompute that reads it, not only for backward.
TEST(MemoryRepairs, ASwapEndsBeforeTheFirstRecomputeThatReadsIt) {
  Chain g;
  // b is computed again from a, which is on the host, before dC; dB, which reads a itself, comes later. The
  // limit leaves no memory for a meanwhile.
  g.problem.link.bytes_per_ms = 1000;
  const auto plan =
      plan_of(g.problem, g.with({{g.a, Treatment::swap}, {g.b, Treatment::recompute}}), /*limit=*/230);
  ASSERT_TRUE(plan);
  const auto again = place(plan->plan, of_node(Step::recompute, 1));
  EXPECT_LT(place(plan->plan, {Step::h2d, g.a}), again);
  EXPECT_LT(again, place(plan->plan, of_node(Step::run, 4)));
  EXPECT_NO_THROW(replay(g.problem, plan->plan));
}

// Alg. F: ancestors that several values share are computed once.
TEST(MemoryRepairs, SharedAncestorsAreComputedOnce) {
  Chain g;
  g.problem.graphs[0].nodes[4].inputs = {g.b, g.c, g.a};  // dC reads all three
  const auto plan = plan_of(
      g.problem,
      g.with({{g.a, Treatment::recompute}, {g.b, Treatment::recompute}, {g.c, Treatment::recompute}}), kAny);
  ASSERT_TRUE(plan);
  const auto count = [&](int node) {
    return std::ranges::count(plan->plan.steps, of_node(Step::recompute, node));
  };
  EXPECT_EQ(1, count(1)) << "B";
  EXPECT_EQ(1, count(2)) << "C";
  EXPECT_LE(plan->cost.recompute_ms, 1 + 1 + 2 + 4) << "A may come again for dB, which reads a later";
}

// Alg. H: every copy has an end that compute waits for, and every value a place where it is freed.
TEST(MemoryRepairs, CopiesAreAwaitedAndValuesAreFreed) {
  Chain g;
  const auto plan = plan_of(g.problem, g.with({{g.a, Treatment::swap}}), kAny);
  ASSERT_TRUE(plan);
  const auto out = place(plan->plan, {Step::d2h, g.a}), freed = place(plan->plan, {Step::free, g.a});
  const auto waited =
      std::find(plan->plan.steps.begin() + out, plan->plan.steps.end(), MemoryStep{Step::wait, g.a});
  EXPECT_LT(out, waited - plan->plan.steps.begin());
  EXPECT_LT(waited - plan->plan.steps.begin(), freed);
  MemoryPlan without = plan->plan;
  std::erase(without.steps, MemoryStep{Step::wait, g.a});
  EXPECT_ANY_THROW(replay(g.problem, without));
}

// active_mem: a node's workspace counts while it runs, and not before or after.
TEST(MemoryRepairs, WorkspaceCountsWhileItsNodeRuns) {
  Chain g;
  const std::int64_t plain = plan_of(g.problem, retain_all(g.problem), kAny)->cost.peak_bytes;
  EXPECT_EQ(10 + 100 * 3 + 1 + 10, plain) << "x, a, b, c, loss, and dc while dC runs";
  g.problem.graphs[0].nodes[0].workspace_bytes = 200;  // A runs while only x and a are there: 10 + 100 + 200
  EXPECT_EQ(plain, plan_of(g.problem, retain_all(g.problem), kAny)->cost.peak_bytes);
  g.problem.graphs[0].nodes[4].workspace_bytes = 50;
  EXPECT_EQ(plain + 50, plan_of(g.problem, retain_all(g.problem), kAny)->cost.peak_bytes);
}

// Optimizer nodes: what reads a weight is not computed again after the weight was updated.
TEST(MemoryRepairs, NothingIsComputedAgainFromAnUpdatedWeight) {
  Chain g;
  const int late = g.value(10, Kind::gradient);
  g.problem.graphs[0].nodes[5].inputs = {g.dc};  // dB does not read a
  g.node("late", kBackward, 1, {g.a}, {late});   // after the update of A's weight
  EXPECT_FALSE(plan_of(g.problem, g.with({{g.a, Treatment::recompute}}), kAny));
  EXPECT_TRUE(plan_of(g.problem, g.with({{g.a, Treatment::swap}}), kAny));
}

// Alg. C: on a channel that is busy, a copy begins when the one before it has ended; the stall is what is
// left.
TEST(MemoryRepairs, CopiesQueueOnTheirChannel) {
  Chain g;
  g.problem.link.bytes_per_ms = 5;  // 20 ms for each value
  const auto one = plan_of(g.problem, g.with({{g.b, Treatment::swap}}), kAny),
             two = plan_of(g.problem, g.with({{g.a, Treatment::swap}, {g.b, Treatment::swap}}), kAny);
  ASSERT_TRUE(one && two);
  // Within this limit both may stay, so nothing comes back; but backward waits until they have left. b leaves
  // after C, from 7 to 27 ms, and dC could begin at 8.
  EXPECT_DOUBLE_EQ(19, one->cost.stall_ms);
  // a leaves after B, from 3 to 23 ms, and b behind it, from 23 to 43.
  EXPECT_DOUBLE_EQ(35, two->cost.stall_ms);
}

// Alg. B, line 17: what is computed again is the candidate for that, not the one for a swap.
TEST(MemoryRepairs, TheCandidateForARecomputeIsTheOneThatIsComputedAgain) {
  Chain g;
  g.problem.graphs[0].nodes[0].run_ms = 50;            // a rests longest, and b gives the most bytes per ms
  g.problem.graphs[0].nodes[3].workspace_bytes = 100;  // of the loss: 10 + 300 + 1 + 100 without b's 100
  g.problem.link.bytes_per_ms = 1;
  const CostedPlan plan = memory_policy("mu-two").make(g.problem, /*limit=*/330);
  EXPECT_EQ(321, plan.cost.peak_bytes) << "of dC, which reads b and c beside a";
  EXPECT_EQ(1, std::ranges::count(plan.plan.steps, of_node(Step::recompute, 1))) << "B makes b";
  EXPECT_DOUBLE_EQ(2, plan.cost.recompute_ms) << "and nothing else comes again";
  EXPECT_DOUBLE_EQ(0, plan.cost.stall_ms);
}

// Alg. F: a value counts once for itself, and once for each recomputed value that needs it.
TEST(MemoryRepairs, WhatRecomputedValuesNeedIsComputedMoreOften) {
  WrittenProblem g;
  g.problem.link = {};
  const int x = g.value(10, Kind::input), a = g.value(100), b = g.value(100), c = g.value(100),
            sum = g.value(1), loss = g.value(1, Kind::output);
  g.graph("two branches");
  g.node("A", kForward, 4, {x}, {a});
  g.node("B", kForward, 1, {a}, {b});
  g.node("C", kForward, 6, {x}, {c});
  g.node("sum", kForward, 1, {b, c}, {sum});
  g.node("loss", kForward, 1, {sum}, {loss}, /*workspace=*/300);
  g.node("dB", kBackward, 1, {b}, {});
  g.node("dC", kBackward, 1, {c}, {});
  g.node("dA", kBackward, 1, {a}, {});
  const auto recomputed = [&](std::int64_t limit) {
    std::vector<int> nodes;
    for (const MemoryStep& s : memory_policy("mu-two").make(g.problem, limit).plan.steps)
      if (s.kind == Step::recompute) nodes.push_back(s.node);
    return nodes;
  };
  // The loss has a, b and c beside its workspace, and x.
  EXPECT_EQ((std::vector<int>{}), recomputed(620));
  EXPECT_EQ((std::vector<int>{1}), recomputed(550)) << "b gives 100 bytes for 1 ms";
  // Then a would give 100 bytes for 2 · 4 ms, since b needs it, too, and c gives them for 6 ms.
  EXPECT_EQ((std::vector<int>{1, 2}), recomputed(450));
}

// Rank: `mu-two` swaps first what rests longest, `capuchin` what rests longest beside its two copies.
TEST(MemoryRepairs, PoliciesRankSwapsByRestOrByFreeTime) {
  WrittenProblem g;
  const int x = g.value(1, Kind::input), wide = g.value(200), narrow = g.value(100), c = g.value(1),
            dc = g.value(1), dn = g.value(1), dw = g.value(1);
  g.graph("wide and narrow");
  g.node("wide", kForward, 1000, {x}, {wide});
  g.node("narrow", kForward, 1000, {wide}, {narrow});
  g.node("C", kForward, 5, {narrow}, {c});
  g.node("dC", kBackward, 100, {c}, {dc}, /*workspace=*/100);
  g.node("dnarrow", kBackward, 5, {dc, narrow}, {dn});
  g.node("dwide", kBackward, 1, {dn, wide}, {dw});
  // wide rests 110 ms, of which two copies leave 70; narrow rests 100, and two copies leave 80.
  const auto swapped = [&](const char* policy) {
    std::vector<int> values;
    for (const MemoryStep& s : memory_policy(policy).make(g.problem, /*limit=*/310).plan.steps)
      if (s.kind == Step::d2h) values.push_back(s.value);
    return values;
  };
  EXPECT_EQ(std::vector<int>{wide}, swapped("mu-two"));
  EXPECT_EQ(std::vector<int>{narrow}, swapped("capuchin"));
}

// Alg. C: a copy begins early enough for the one behind it, and not before its source has left.
TEST(MemoryRepairs, ACopyBeginsBeforeTheOneBehindItAndNotBeforeItsSourceHasLeft) {
  Chain g;
  MemoryGraph& graph = g.problem.graphs[0];
  int tick = g.x;
  const auto add_ticks = [&](int place) {  // of 1 ms
    for (int i = 0; i < 20; ++i) {
      const int next = g.value(1);
      graph.nodes.insert(graph.nodes.begin() + place + i, {"tick", kForward, 1, 0, {tick}, {next}});
      tick = next;
    }
  };
  graph.nodes[3].workspace_bytes = 200;  // of the loss, beside which neither a nor b may be
  add_ticks(3);                          // in which they leave
  add_ticks(24);                         // in which they come back
  const MemoryDecisions both = g.with({{g.a, Treatment::swap}, {g.b, Treatment::swap}});
  const auto plan = plan_of(g.problem, both, /*limit=*/340);
  ASSERT_TRUE(plan);
  EXPECT_DOUBLE_EQ(0, plan->cost.stall_ms);
  // A copy takes 10 ms, dC 8: a's begins 2 ms before dC, so that b's has to end there, 12 ms before dC.
  const auto nodes_between = [&](int v, int node) {
    const auto begin = plan->plan.steps.begin() + place(plan->plan, {Step::h2d, v}),
               end = plan->plan.steps.begin() + place(plan->plan, of_node(Step::run, node));
    return std::count_if(begin, end, [](const MemoryStep& s) { return s.kind == Step::run; });
  };
  EXPECT_EQ(12, nodes_between(g.b, 44));
  EXPECT_EQ(2, nodes_between(g.a, 44));

  g.problem.link.bytes_per_ms = 0.1;  // a copy takes a second, much longer than a rests
  const auto slow = plan_of(g.problem, both, /*limit=*/340);
  ASSERT_TRUE(slow);
  for (const int v : {g.a, g.b}) {
    EXPECT_LT(place(slow->plan, {Step::d2h, v}), place(slow->plan, {Step::free, v}));
    EXPECT_LT(place(slow->plan, {Step::free, v}), place(slow->plan, {Step::h2d, v}));
  }
  EXPECT_EQ(slow->cost.peak_bytes, replay(g.problem, slow->plan).peak_bytes);
}

// Static memory: gradients of weights are values, which the update frees at once.
TEST(MemoryRepairs, AGradientOfAWeightLivesFromItsNodeToItsUpdate) {
  Chain g;
  const std::int64_t without = plan_of(g.problem, retain_all(g.problem), kAny)->cost.peak_bytes;
  const int gradient = g.value(1000, Kind::gradient);
  g.problem.graphs[0].nodes[6].outputs.push_back(gradient);  // of dA
  g.problem.graphs[0].nodes[7].inputs.push_back(gradient);   // of the update
  const auto plan = plan_of(g.problem, retain_all(g.problem), kAny);
  ASSERT_TRUE(plan);
  EXPECT_EQ(321, without);
  // x, loss, db, da and the gradient: a, b, c and dc are gone.
  EXPECT_EQ(10 + 1 + 10 + 10 + 1000, plan->cost.peak_bytes);
  EXPECT_LT(place(plan->plan, of_node(Step::run, 7)), place(plan->plan, {Step::free, gradient}));
}

// What a shortcut goes around can need its memory: then it is computed again within a pass, too.
TEST(MemoryRepairs, AShortcutIsComputedAgainWithinBackward) {
  WrittenProblem g;
  g.problem.link = {};
  const int x = g.value(1, Kind::input), stem = g.value(10), a = g.value(10), b = g.value(10),
            c = g.value(10), out = g.value(4, Kind::output), d = g.value(10), dc = g.value(10),
            db = g.value(10), da = g.value(10);
  g.graph("residual block");
  g.node("stem", kForward, 1, {x}, {stem});
  g.node("A", kForward, 2, {stem}, {a});
  g.node("B", kForward, 2, {a}, {b});
  g.node("C", kForward, 2, {b}, {c});
  g.node("merge", kForward, 1, {c, stem}, {out});
  g.node("dmerge", kBackward, 1, {stem, c}, {d});
  g.node("dC", kBackward, 4, {d, b}, {dc});
  g.node("dB", kBackward, 4, {dc, a}, {db}, /*workspace=*/20);
  g.node("dA", kBackward, 4, {db, stem}, {da});
  const CostedPlan plan = memory_policy("mu-two+").make(g.problem, 56);
  EXPECT_LE(plan.cost.peak_bytes, 56) << "64 with the stem beside dB";
  EXPECT_DOUBLE_EQ(1, plan.cost.recompute_ms) << "the stem, before dA";
}

TEST(MemoryRepairs, AShortcutIsComputedAgainWithinForward) {
  WrittenProblem g;
  g.problem.link = {};
  const int x = g.value(1, Kind::input), a = g.value(100), b = g.value(1), d = g.value(1), c = g.value(1),
            gradient = g.value(1);
  g.graph("shortcut");
  g.node("A", kForward, 1, {x}, {a});
  g.node("B", kForward, 1, {a}, {b});
  g.node("D", kForward, 1, {b}, {d}, /*workspace=*/200);
  g.node("C", kForward, 1, {a, d}, {c});
  g.node("dC", kBackward, 1, {c}, {gradient});
  const CostedPlan plan = memory_policy("mu-two+").make(g.problem, 250);
  EXPECT_EQ(1 + 1 + 1 + 200, plan.cost.peak_bytes) << "of D, without a";
  EXPECT_DOUBLE_EQ(1, plan.cost.recompute_ms);
}

// An input leaves after the last node that repeats with it.
TEST(MemoryRepairs, AnInputLeavesAfterTheLastRepeat) {
  Chain g;
  const auto plan = plan_of(g.problem, g.with({{g.a, Treatment::recompute}}), kAny);
  ASSERT_TRUE(plan);
  const MemoryStep gone{Step::free, g.x}, again = of_node(Step::recompute, 0), last = of_node(Step::run, 6);
  EXPECT_LT(place(plan->plan, again), place(plan->plan, gone));
  EXPECT_LT(place(plan->plan, last), place(plan->plan, gone)) << "dA reads it";
  EXPECT_LT(place(plan->plan, gone), place(plan->plan, of_node(Step::run, 7))) << "update does not";
}

// A pair's plan is a whole period: what graph 0's forward leaves at the end is there at the start.
TEST(MemoryRepairs, APairEndsAsItBegan) {
  const Chain first;
  const MemoryProblem pair = pair_of(first.problem);
  const auto plan = plan_of(pair, retain_all(pair), kAny);
  ASSERT_TRUE(plan);
  EXPECT_EQ((std::vector<int>{first.a, first.b, first.c}), [&] {
    std::vector<int> start = plan->plan.resident_at_start;
    std::erase(start, first.loss);
    std::ranges::sort(start);
    return start;
  }());
  // Both graphs' peaks: features of one beside the other's, never twice of one.
  const std::int64_t alone = plan_of(first.problem, retain_all(first.problem), kAny)->cost.peak_bytes;
  EXPECT_LT(plan->cost.peak_bytes, 2 * alone);
  EXPECT_GT(plan->cost.peak_bytes, alone);
  EXPECT_DOUBLE_EQ(2 * 33.0, plan->cost.time_ms);
}

// add_forward_node, as in Fig. 6: the forward order is fixed, and a node that comes before one backward node
// comes before all later ones.
TEST(MemoryRepairs, ForwardNodesKeepTheirOrderBesideBackward) {
  const Chain first;
  const MemoryProblem pair = pair_of(first.problem);
  MemoryDecisions d = retain_all(pair);
  d.forward_before[0] = {1, 3, 3, 3};  // of graph 1, before dC, dB, dA, update of graph 0
  const auto plan = plan_of(pair, d, kAny);
  ASSERT_TRUE(plan);
  std::vector<std::pair<int, int>> order;
  for (const MemoryStep& s : plan->plan.steps)
    if (s.kind == Step::run) order.emplace_back(s.graph, s.node);
  using Order = std::vector<std::pair<int, int>>;
  EXPECT_EQ((Order{{1, 0}, {0, 4}, {1, 1}, {1, 2}, {0, 5}, {0, 6}, {0, 7}, {1, 3}}),
            Order(order.begin(), order.begin() + 8));
}

// Five layers, as in the paper's Fig. 6: forward nodes take 3 ms, backward nodes 4, and a copy of Z1 to Z4
// takes
// 6. Forward also makes what cannot be computed again.
struct Fig6 : WrittenProblem {
  std::vector<int> z;
  Fig6() {
    graph("array");
    z.push_back(value(0, Kind::input));
    for (const char* name : {"Z1", "Z2", "Z3", "Z4", "Z5"}) {
      z.push_back(value(60));
      node(name, kForward, 3, {z[z.size() - 2]}, {z.back()});
    }
    int gradient = value(1);  // of the loss
    node("loss", kForward, 30, {z.back()}, {gradient});
    for (std::size_t i = 5; i > 0; --i) {
      const int next = value(1);
      node("dZ", kBackward, 4, {z[i - 1], gradient}, {next});
      gradient = next;
    }
  }
};

// Fig. 6: Z1 to Z4 of the first array are swapped in one after the other, where `before` forward nodes of the
// second array come before each backward node of the first.
TEST(MemoryRepairs, SwapsOfFig6StallAsItsCasesSay) {
  const Fig6 one;
  const MemoryProblem pair = pair_of(one.problem);
  const double computed = 2 * (5 * 3 + 30 + 5 * 4);
  const auto cost = [&](int swapped_from, int swapped_to, std::vector<int> before) {
    MemoryDecisions d = retain_all(pair);
    for (int z = swapped_from; z <= swapped_to; ++z)
      d.values[static_cast<std::size_t>(one.z[static_cast<std::size_t>(z)])] = Treatment::swap;
    d.forward_before[0] = std::move(before);  // dZ5 to dZ1
    const auto plan = plan_of(pair, d, kAny);
    EXPECT_TRUE(plan);
    EXPECT_DOUBLE_EQ(computed + plan->cost.stall_ms, plan->cost.time_ms);
    return plan->cost.stall_ms;
  };
  // 6d, case 2: the copy of Z1 is hidden. Backward nodes are enough for that here.
  EXPECT_DOUBLE_EQ(0, cost(1, 1, {0, 0, 0, 0, 0}));
  // 6e, case 2(b): with Z2, Z1's copy moves behind Z2's. It is hidden, too, since Z2's copy begins at once;
  // if it has to queue behind that of Z3, which stalls for 2 ms, a forward node has to come first.
  EXPECT_DOUBLE_EQ(0, cost(1, 2, {0, 0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(2 + 2, cost(2, 3, {0, 0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(2, cost(2, 3, {0, 0, 1, 1, 1}));
  // 6f, case 3: no forward node may come before dZ4. Its copy has only dZ5 beside it: 2 ms remain.
  EXPECT_DOUBLE_EQ(2, cost(3, 3, {0, 0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(2, cost(1, 3, {0, 0, 2, 3, 3}));
  // 6g, case 1(a): Z4 is read first of all, and nothing runs beside its copy: 6 ms. Z3's copy queues behind
  // it.
  EXPECT_DOUBLE_EQ(6, cost(4, 4, {0, 0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(6 + 2, cost(3, 4, {0, 0, 0, 0, 0}));
}

// Alg. C: a forward node that makes the peak worse goes back. Beside a copy it would hide its stall of 5 ms,
// but with what it makes the limit is exceeded, and B would have to come again: 58 ms.
TEST(MemoryRepairs, AForwardNodeThatExceedsTheLimitStaysWhereItWas) {
  WrittenProblem g;
  const auto array = [&](std::int64_t a, double a_ms, double da_ms, std::int64_t b, double b_ms, double db_ms,
                         double loss_ms) {
    const int x = g.value(0, Kind::input), va = g.value(a), vb = g.value(b), loss = g.value(1),
              db = g.value(1), da = g.value(1);
    g.graph("array");
    g.node("A", kForward, a_ms, {x}, {va});
    g.node("B", kForward, b_ms, {va}, {vb});
    g.node("loss", kForward, loss_ms, {vb}, {loss});
    g.node("dB", kBackward, db_ms, {va, loss}, {db});
    g.node("dA", kBackward, da_ms, {x, db}, {da});
  };
  array(/*a=*/30, 7, 8, /*b=*/40, 3, 1, 4);
  array(/*a=*/50, 8, 5, /*b=*/50, 5, 4, 5);
  const CostedPlan plan = memory_policy("mu-two").make(g.problem, /*limit=*/100);
  EXPECT_EQ(100, plan.cost.peak_bytes);
  EXPECT_DOUBLE_EQ(0, plan.cost.recompute_ms);
  EXPECT_DOUBLE_EQ(5, plan.cost.stall_ms);
  EXPECT_DOUBLE_EQ(7 + 3 + 4 + 1 + 8 + 8 + 5 + 5 + 4 + 5 + 5, plan.cost.time_ms);
}

}  // namespace
}  // namespace tandem::testing
