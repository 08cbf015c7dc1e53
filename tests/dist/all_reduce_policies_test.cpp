// The policies on small instances by hand, and all of them in the simulator.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/all_reduce_policies.h>
#include <tandem/dist/backward_program.h>
#include <tandem/dist/data_parallel.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
namespace {

// One number of threads, which slows computation to `speed`; all-reduces take `startup` ms and 1 ms per byte.
AllReduceProblem problem(std::vector<GradientLayer> layers, double startup, double speed = 1) {
  const ThreadRates rates{1, speed, 1, 1};
  return {std::move(layers), {startup, 1, {rates}}, [=](double) { return rates; }};
}

AllReducePlan planned(const std::string& policy, const AllReduceProblem& p) {
  return all_reduce_policy(policy).plan(p);
}

std::vector<int> last_layers(const AllReducePlan& plan) {
  std::vector<int> last;
  for (const AllReduceGroup& g : plan.groups) last.push_back(g.last_layer);
  return last;
}

// Random layers and groups. Costs hold the paper's assumptions unless `any` is set.
struct Drawn {
  AllReduceProblem problem;
  std::vector<AllReduceGroup> groups;
};
Drawn drawn(std::mt19937_64& rng) {
  Drawn d;
  AllReduceProblem& p = d.problem;
  const int layers = draw_int(rng, 1, 12);
  for (int l = 0; l < layers; ++l)
    p.layers.push_back({"layer", draw_bool(rng, 0.1) ? 0 : draw_real(rng, 0, 10),
                        draw_bool(rng, 0.1) ? 0 : draw_real(rng, 0, 100)});
  p.layers[0].compute_ms += 0.1;
  p.costs = {draw_real(rng, 0, 2), 1, {}};
  for (int r = 1; r <= 3; ++r) {
    const double overlapped = draw_real(rng, 5, 20);
    p.costs.choices.push_back({r, draw_real(rng, 0.3, 1), overlapped, overlapped * draw_real(rng, 1, 1.5)});
  }
  p.baseline = [rates = p.costs.choices[0]](double) { return rates; };
  p.limits = {draw_int(rng, 1, 5), 40};
  for (int first = 0; first < layers;) {
    const int last = draw_int(rng, first, layers - 1);
    d.groups.push_back({first, last, p.costs.choices[static_cast<std::size_t>(draw_int(rng, 0, 2))]});
    first = last + 1;
  }
  return d;
}

TEST(BackwardProgram, TakesTheTimeOfTheEquationsInTheSimulator) {
  std::mt19937_64 rng = generator("backward program");
  for (int n = 0; n < 3000; ++n) {
    const Drawn d = drawn(rng);
    const BackwardTimes by_equation = backward_times(d.problem.layers, d.groups, d.problem.costs);
    const BackwardTimes by_simulation =
        engine::simulate_backward(d.problem.layers, d.groups, d.problem.costs).times;
    ASSERT_NEAR(by_equation.backward_ms, by_simulation.backward_ms, 1e-9 * by_equation.backward_ms) << n;
    ASSERT_NEAR(by_equation.compute_ms, by_simulation.compute_ms, 1e-9 * by_equation.backward_ms) << n;
  }
}

TEST(AllReducePolicies, PlanEveryLayerOnceAndLibraIsTheBest) {
  std::mt19937_64 rng = generator("policies");
  for (int n = 0; n < 500; ++n) {
    Drawn d = drawn(rng);
    AllReduceProblem& p = d.problem;
    p.limits.groups = 100;
    const double libra = planned("libra", p).predicted.backward_ms;
    for (const AllReducePolicy& policy : all_reduce_policies()) {
      const AllReducePlan plan = policy.plan(p);
      EXPECT_NO_THROW(require_each_layer_once(p.layers, plan.groups)) << policy.name;
      EXPECT_NEAR(plan.predicted.backward_ms, plan.predicted.compute_ms + plan.predicted.residual_ms, 1e-9);
      EXPECT_EQ(policy.name.starts_with("libra"), plan.grid_ms.has_value());
      if (policy.name != "horovod") {  // which the equations do not know
        const double by_equation = backward_times(p.layers, plan.groups, p.costs).backward_ms;
        EXPECT_NEAR(by_equation, plan.predicted.backward_ms, 1e-9 * by_equation) << policy.name;
      }
      // Theorem 2 bounds what other plans could gain.
      if (policy.name == "mg-cf" || !violated_assumptions(p).empty()) continue;
      const double bound = 1 + static_cast<double>(p.layers.size()) / p.limits.chunks;
      EXPECT_LE(libra, plan.predicted.backward_ms * bound + 1e-9) << policy.name;
    }
  }
}

TEST(AllReducePolicies, ReduceAtOnceByItselfOrInBuckets) {
  constexpr double kMiB = 1 << 20;
  AllReduceProblem p = problem(
      {{"a", 1, 0.6 * kMiB}, {"b", 1, 0.6 * kMiB}, {"c", 1, 24 * kMiB}, {"d", 1, 40 * kMiB}, {"e", 1, 1}}, 1);
  EXPECT_EQ((std::vector<int>{4}), last_layers(planned("se", p)));
  EXPECT_EQ((std::vector<int>{0, 1, 2, 3, 4}), last_layers(planned("wfbp", p)));
  EXPECT_EQ((std::vector<int>{1, 3, 4}), last_layers(planned("ddp", p)))
      << "closed after the limit is passed";
  p.layers.resize(1);
  EXPECT_DOUBLE_EQ(1 + 1 + 0.6 * kMiB, planned("se", p).predicted.backward_ms);
}

// Beside an all-reduce, computation has half its speed. At the tick of 5 ms, a and b begin, which takes 2 ms.
// At 10 ms, d has had 3 of its 5 ms; beside c's 6 ms it needs 4 ms for the rest. The next tick is at 15 ms,
// but c ends at 16, and then d is reduced.
TEST(AllReducePolicies, HorovodReducesAtTicksWhatItsBufferHolds) {
  AllReduceProblem p = problem({{"a", 3, 1}, {"b", 1, 1}, {"c", 2, 6}, {"d", 5, 6}}, 0, 0.5);
  p.fusion_bytes = 8;
  const AllReducePlan plan = planned("horovod", p);
  EXPECT_EQ((std::vector<int>{1, 2, 3}), last_layers(plan));
  EXPECT_EQ(5, plan.groups[0].earliest_ms);
  EXPECT_EQ(10, plan.groups[1].earliest_ms) << "c is computed at 7 ms: 1 ms from 4, and 1 ms at half speed";
  EXPECT_EQ(15, plan.groups[2].earliest_ms);
  EXPECT_DOUBLE_EQ(14, plan.predicted.compute_ms);
  EXPECT_DOUBLE_EQ(22, plan.predicted.backward_ms);
  p.fusion_bytes = 4;
  EXPECT_EQ((std::vector<int>{1, 2, 3}), last_layers(planned("horovod", p))) << "a larger one goes alone";
  EXPECT_EQ(3, planned("horovod", problem({{"no gradient", 3, 0}}, 1)).predicted.backward_ms);
  // What is computed at the tick is reduced at it, and what fills the buffer fits.
  AllReduceProblem full = problem({{"a", 4, 3}, {"b", 1, 5}, {"c", 5, 1}}, 0);
  full.fusion_bytes = 8;
  const AllReducePlan at_tick = planned("horovod", full);
  EXPECT_EQ((std::vector<int>{1, 2}), last_layers(at_tick));
  EXPECT_EQ(5, at_tick.groups[0].earliest_ms);
  EXPECT_EQ(10, at_tick.groups[1].earliest_ms);
}

// A gradient that comes just when an all-reduce has started up is too late for it.
TEST(AllReducePolicies, MgWfbpWaitsForWhatComesBeforeTheStartup) {
  EXPECT_EQ((std::vector<int>{0, 1}),
            last_layers(planned("mg-wfbp", problem({{"a", 1, 1}, {"b", 1, 1}}, 1))));
  EXPECT_EQ((std::vector<int>{1}), last_layers(planned("mg-wfbp", problem({{"a", 1, 1}, {"b", 0.5, 1}}, 1))));
}

// The greedy rule merges y with x, which then begins later.
TEST(AllReducePolicies, MgWfbpIsNotTheOptimumOfItsModel) {
  const AllReduceProblem p = problem({{"x", 0.1, 1.5}, {"y", 0.9, 0.1}, {"z", 1.05, 0.1}}, 1);
  const AllReducePlan greedy = planned("mg-wfbp", p), best = planned("mg-opt", p);
  EXPECT_NEAR(3.8, best.predicted.backward_ms, 1e-12);
  EXPECT_NEAR(4.7, greedy.predicted.backward_ms, 1e-12);
  std::mt19937_64 rng = generator("mg");
  for (int n = 0; n < 1000; ++n) {
    AllReduceProblem drawn = problem({}, draw_real(rng, 0, 2));
    const int layers = draw_int(rng, 1, 7);
    for (int l = 0; l < layers; ++l)
      drawn.layers.push_back({"", draw_real(rng, 0, 2), draw_bool(rng, 0.2) ? 0 : draw_real(rng, 0, 2)});
    double least = HUGE_VAL;
    for (unsigned cuts = 0; cuts < 1u << (layers - 1); ++cuts) {
      std::vector<AllReduceGroup> groups;
      for (int first = 0, l = 0; l < layers; ++l)
        if (l + 1 == layers || (cuts >> l & 1u))
          groups.push_back({first, l, drawn.baseline(0)}), first = l + 1;
      least = std::min(least, backward_times(drawn.layers, groups, drawn.costs).backward_ms);
    }
    ASSERT_NEAR(least, planned("mg-opt", drawn).predicted.backward_ms, 1e-9) << n;
    ASSERT_GE(planned("mg-wfbp", drawn).predicted.backward_ms, least - 1e-9) << n;
  }
}

TEST(AllReducePolicies, ThreadsOfBaselinesFollowTheBytes) {
  const ThreadTable nccl = nccl_threads(8);
  EXPECT_EQ(64, nccl.at(4096));
  EXPECT_EQ(128, nccl.at(4097));
  EXPECT_EQ(256, nccl.at(16384));
  EXPECT_EQ(512, nccl.at(16385));
  expect_error([] { all_reduce_policy("fifo"); }, {"unknown policy 'fifo'", "se, wfbp, ddp", "libra"});
}

TEST(AllReducePolicies, MakeFusionGroupsOfEachStage) {
  constexpr double kMiB = 1 << 20;
  const std::vector<std::vector<GradientLayer>> stages{
      {{"a", 0, kMiB / 2, {"a"}}, {"b", 0, kMiB, {"b"}}, {"c", 0, kMiB, {"c"}}}, {}, {{"d", 0, 4, {"d"}}}};
  const auto groups = engine::fusion_groups(stages, "ddp");
  ASSERT_EQ(3, std::ssize(groups));
  EXPECT_EQ((std::vector<std::string>{"a", "b"}), groups[0].parameters);
  EXPECT_EQ((std::vector<std::string>{"c"}), groups[1].parameters);
  EXPECT_EQ((std::vector<std::string>{"d"}), groups[2].parameters);
  EXPECT_EQ(2, std::ssize(engine::fusion_groups(stages, "se")));
  EXPECT_EQ(4, std::ssize(engine::fusion_groups(stages, "wfbp")));
  expect_error([&] { engine::fusion_groups(stages, "libra"); }, {"'libra' plans from measured times"});
}

TEST(AllReducePolicies, SayWhichAssumptionsTheCostsViolate) {
  AllReduceProblem p = problem({{"a", 1, 10}}, 0);
  p.costs.choices = {{1, 0.5, 10, 11}, {2, 0.5, 10, 9}, {3, 0.5, 10, 30}};
  const auto lines = violated_assumptions(p);
  ASSERT_EQ(2, std::ssize(lines));
  EXPECT_NE(lines[0].find("2 threads an all-reduce is faster beside computation"), std::string::npos);
  EXPECT_NE(lines[1].find("3 threads an all-reduce and a computation take longer"), std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
