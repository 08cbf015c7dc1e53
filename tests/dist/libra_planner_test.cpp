// LIBRA's planner against an exhaustive search, and its model of a backward pass by hand.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/libra_planner.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
namespace {

struct Instance {
  std::vector<GradientLayer> layers;
  AllReduceCosts costs;
  LibraLimits limits;
};

// Layers without computation or without gradients occur. A faster all-reduce takes more from computation. The
// paper's assumptions hold: computation beside it makes an all-reduce no faster, and waiting never helps.
Instance drawn(std::mt19937_64& rng) {
  std::uniform_real_distribution<double> u(0, 1);
  Instance i;
  const std::int64_t layers = draw_int(rng, 1, 6), choices = draw_int(rng, 1, 3);
  for (std::int64_t l = 0; l < layers; ++l)
    i.layers.push_back({"", u(rng) < 0.2 ? 0 : u(rng), u(rng) < 0.2 ? 0 : u(rng)});
  i.layers[0].compute_ms += 0.01;
  double speed = 1, overlapped = 0.3 + u(rng), alone = overlapped * (1 + u(rng) / 2);
  i.costs.startup_ms = 0.3 * u(rng);
  for (std::int64_t c = 0; c < choices; ++c) {
    speed *= 0.7 + 0.3 * u(rng);
    overlapped *= 1 + u(rng);
    alone = std::clamp(alone * (1 + u(rng)), overlapped, overlapped / (1 - speed + 1e-9));
    i.costs.choices.push_back({static_cast<int>(c) + 1, speed, overlapped, alone});
  }
  i.limits = {static_cast<int>(draw_int(rng, 1, 5)), static_cast<int>(draw_int(rng, 1, 10))};
  return i;
}

// Tries every begin of every group on the grid, as Eq. 23 is written. From `begin`, `left` groups may follow.
double search(const Instance& i, std::size_t first, int begin, int left, bool fixed) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double total = 0, best = kNever;
  for (const GradientLayer& l : i.layers) total += l.compute_ms;
  const int chunks = i.limits.chunks;
  const double chunk = total / chunks;
  if (first == i.layers.size()) return begin == chunks ? 0 : kNever;
  if (left == 0) return kNever;
  double bytes = 0, computed = 0;
  for (std::size_t l = 0; l < first; ++l) computed += i.layers[l].compute_ms;
  for (std::size_t last = first; last < (fixed ? first + 1 : i.layers.size()); ++last) {
    bytes += i.layers[last].gradient_bytes;
    computed += i.layers[last].compute_ms;
    const int ready = last + 1 == i.layers.size()
                          ? chunks
                          : std::min(static_cast<int>(std::ceil(computed / chunk - 1e-9)), chunks);
    for (int z = std::max(begin, ready); z <= chunks; ++z)
      for (int end = z; end <= chunks; ++end)
        for (std::size_t r = 0; r < i.costs.choices.size(); ++r) {
          const double b = (end - z) * chunk, p = i.costs.overlapped_ms(bytes, i.costs.choices[r]),
                       q = i.costs.alone_ms(bytes, i.costs.choices[r]),
                       g = b / i.costs.choices[r].compute_rate;
          const double beside = std::min(p, g);
          const double rest_b = g > 0 ? b * (1 - beside / g) : 0, rest_c = p > 0 ? q * (1 - beside / p) : 0;
          if (end < chunks && rest_c > 1e-9) continue;
          best = std::min(best, (z - begin) * chunk + beside + rest_b + rest_c +
                                    search(i, last + 1, end, left - 1, fixed));
        }
  }
  return best;
}

TEST(LibraPlanner, FindsTheOptimumOfAnExhaustiveSearch) {
  std::mt19937_64 rng = generator("libra");
  for (int n = 0; n < 2000; ++n) {
    Instance i = drawn(rng);
    i.layers.resize(std::min<std::size_t>(i.layers.size(), n % 20 == 0 ? 6 : 5));
    i.limits.chunks = std::min(i.limits.chunks, n % 20 == 0 ? 10 : 6);
    const LibraPlan plan = plan_libra(i.layers, i.costs, i.limits);
    const double optimum = search(i, 0, 0, i.limits.groups, false);
    ASSERT_NEAR(optimum, plan.grid_ms, 1e-9 * optimum) << "instance " << n;
    ASSERT_LE(std::ssize(plan.groups), i.limits.groups);
    ASSERT_LE(backward_times(i.layers, plan.groups, i.costs).backward_ms, plan.grid_ms * (1 + 1e-9))
        << "without the edges of chunks";
  }
}

TEST(LibraPlanner, ChoosesTheThreadsOfGivenGroups) {
  std::mt19937_64 rng = generator("threads");
  for (int n = 0; n < 500; ++n) {
    Instance i = drawn(rng);
    i.layers.resize(std::min<std::size_t>(i.layers.size(), 4));
    i.limits.chunks = std::min(i.limits.chunks, 6);
    std::vector<AllReduceGroup> groups;
    for (int l = 0; l < std::ssize(i.layers); ++l) groups.push_back({l, l});
    const LibraPlan plan = plan_threads(i.layers, groups, i.costs, i.limits.chunks);
    const double optimum = search(i, 0, 0, static_cast<int>(i.layers.size()), true);
    ASSERT_NEAR(optimum, plan.grid_ms, 1e-9 * optimum) << "instance " << n;
    ASSERT_LE(backward_times(i.layers, plan.groups, i.costs).backward_ms, plan.grid_ms * (1 + 1e-9));
  }
}

// The least time of any groups, at most `most` of them, and any threads, by Eqs. 8 to 15: without chunks. If
// `fixed`, each layer is a group.
double least_without_chunks(const Instance& i, int most, bool fixed) {
  const int layers = static_cast<int>(i.layers.size());
  double best = std::numeric_limits<double>::infinity();
  std::vector<AllReduceGroup> groups;
  const std::function<void(int)> extend = [&](int first) {
    if (first == layers) best = std::min(best, backward_times(i.layers, groups, i.costs).backward_ms);
    if (std::ssize(groups) == most) return;
    for (int last = first; last < (fixed ? std::min(first + 1, layers) : layers); ++last)
      for (const ThreadRates& rates : i.costs.choices) {
        groups.push_back({first, last, rates});
        extend(last + 1);
        groups.pop_back();
      }
  };
  extend(0);
  return best;
}

// Theorem 1 for the threads of given groups; Theorem 2 for groups and threads together.
TEST(LibraPlanner, IsAsNearToTheOptimumWithoutChunksAsTheTheoremsSay) {
  std::mt19937_64 rng = generator("theorems");
  int apart = 0;  // how often the chunks cost something
  for (int n = 0; n < 2000; ++n) {
    const Instance i = drawn(rng);
    const int layers = static_cast<int>(i.layers.size());
    const double room = 1 + (layers - 1.0) / i.limits.chunks;
    const auto expect_near = [&](const LibraPlan& plan, double optimum) {
      const double ms = backward_times(i.layers, plan.groups, i.costs).backward_ms;
      ASSERT_GE(ms, optimum * (1 - 1e-9)) << "instance " << n;
      ASSERT_LE(ms, optimum * room * (1 + 1e-9)) << "instance " << n;
      apart += ms > optimum * (1 + 1e-9);
    };
    expect_near(plan_libra(i.layers, i.costs, i.limits), least_without_chunks(i, i.limits.groups, false));
    std::vector<AllReduceGroup> each;
    for (int l = 0; l < layers; ++l) each.push_back({l, l});
    expect_near(plan_threads(i.layers, each, i.costs, i.limits.chunks),
                least_without_chunks(i, layers, true));
  }
  EXPECT_GT(apart, 100);
}

TEST(LibraPlanner, IsNoWorseWithMoreGroupsChoicesOrChunks) {
  std::mt19937_64 rng = generator("monotone");
  for (int n = 0; n < 300; ++n) {
    Instance i = drawn(rng);
    const double before = plan_libra(i.layers, i.costs, i.limits).grid_ms;
    const double room = before * 1e-12;
    EXPECT_LE(plan_libra(i.layers, i.costs, {i.limits.groups + 1, i.limits.chunks}).grid_ms, before + room);
    EXPECT_LE(plan_libra(i.layers, i.costs, {i.limits.groups, 2 * i.limits.chunks}).grid_ms, before + room);
    i.costs.choices.push_back({9, 0.5, 3, 3});
    EXPECT_LE(plan_libra(i.layers, i.costs, i.limits).grid_ms, before + room);
  }
}

// Two layers of 2 and 4 ms; the first all-reduce takes 2 ms beside computation, which it slows to a half.
TEST(BackwardTimes, FollowTheModel) {
  const std::vector<GradientLayer> layers{{"a", 2, 10}, {"b", 4, 10}};
  const ThreadRates rates{1, 0.5, 10, 20};
  const AllReduceCosts costs{1, 1};
  const BackwardTimes apart = backward_times(layers, {{0, 0, rates}, {1, 1, rates}}, costs);
  EXPECT_DOUBLE_EQ(2 + 2 + 3, apart.compute_ms);
  EXPECT_DOUBLE_EQ(1 + 0.5, apart.residual_ms);
  const BackwardTimes together = backward_times(layers, {{0, 1, rates}}, costs);
  EXPECT_DOUBLE_EQ(6, together.compute_ms);
  EXPECT_DOUBLE_EQ(1 + 1, together.residual_ms);
  EXPECT_DOUBLE_EQ(8, together.backward_ms);
  expect_error([&] { backward_times(layers, {{1, 1, rates}}, costs); }, {"each of 2 layers once, in order"});
  expect_error([&] { backward_times(layers, {{0, 0, rates}}, costs); }, {"the groups hold 1 of 2 layers"});
}

TEST(ContentionModel, RefusesRatesThatAreNotAboveZero) {
  const ContentionModel model{1, 1.34e-4, {100, 100, 0.1, 0.6}, {110, 110, 0.1, 0.6}};
  EXPECT_NEAR(0.72557, model.at(2048).compute_rate, 1e-5);
  EXPECT_GT(model.at(2048).overlapped, model.at(128).overlapped);
  expect_error([&] { model.at(8192); }, {"8192 threads", "α1 − α2·r"});
  expect_error([&] { model.at(0); }, {"0 threads", "beside computation"});
}

// All-reduces beside which far more chunks could be computed than there are, and than an int holds.
TEST(LibraPlanner, AnAllReduceOfManyChunksEndsAfterTheComputation) {
  const AllReduceCosts costs{0.02, 1, {{1, 0.99, 1e6, 1e6}, {2, 0.5, 4e6, 4e6}}};
  for (const auto& [bytes, chunks] : {std::pair(3e9, 2'000'000), {1e15, 150}}) {
    const std::vector<GradientLayer> layers{{"a", 1, bytes}, {"b", 1, 1e3}};
    const LibraPlan plan = plan_threads(layers, {{0, 0}, {1, 1}}, costs, chunks);
    EXPECT_EQ(2, plan.groups[0].rates.threads);
    const double ms = backward_times(layers, plan.groups, costs).backward_ms;
    EXPECT_NEAR(ms, plan.grid_ms, 1e-9 * ms);
  }
}

TEST(LibraPlanner, RefusesWhatItCannotPlan) {
  const std::vector<GradientLayer> layers{{"a", 1, 1}};
  const AllReduceCosts costs{1, 1, {{1, 0.5, 1, 1}}};
  EXPECT_THROW(plan_libra({}, costs), Error);
  EXPECT_THROW(plan_libra({{"a", 0, 1}}, costs), Error);
  EXPECT_THROW(plan_libra(layers, {1, 1, {}}), Error);
  EXPECT_THROW(plan_libra(layers, costs, {0, 150}), Error);
  EXPECT_THROW(plan_libra(layers, costs, {10, 0}), Error);
  EXPECT_THROW(plan_threads(layers, {}, costs), Error);
  const std::vector<GradientLayer> many(300, {"a", 1, 1});
  expect_error(
      [&] {
        plan_libra(many, costs, {10, 300'000});
      },
      {"300000 chunks of 300 layers", "8.7 GB", "at most 69212 chunks (--chunks)", "fewer groups"});
  try {  // which has the groups that it is given
    plan_threads(many, {{0, 299}}, costs, 1'000'000);
    FAIL() << "it needs 4.8 GB";
  } catch (const Error& e) {
    expect_words(e.what(), {"at most", "chunks (--chunks)"});
    EXPECT_EQ(std::string(e.what()).find("--groups"), std::string::npos) << e.what();
  }
}

// One table serves any number of groups. Tables for each of up to 28 groups would be too large.
TEST(LibraPlanner, NeedsNoTableForEachOfUnlimitedGroups) {
  const AllReduceCosts costs{1, 1, {{1, 0.5, 1e9, 1e9}}};
  const std::vector<GradientLayer> layers(30, {"a", 1, 1});
  EXPECT_THROW(plan_libra(layers, costs, {28, 270'000}), Error);
  EXPECT_NO_THROW(plan_libra(layers, costs, {30, 270'000}));
}

}  // namespace
}  // namespace tandem::testing
