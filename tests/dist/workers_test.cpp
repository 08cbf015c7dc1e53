// The threads that help a collective.
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/workers.h>

#include "expect_error.h"

namespace tandem::testing {
namespace {

using engine::Workers;

// Sums 0 … n − 1 piece by piece.
std::int64_t sum(Workers& workers, int threads, std::int64_t n) {
  workers.reserve(threads);
  std::atomic<std::int64_t> next{0}, total{0};
  const auto part = [&] {
    for (std::int64_t i; (i = next.fetch_add(1)) < n;) total += i;
  };
  workers.run(threads, part);
  return total;
}

TEST(Workers, ShareOutTheWorkForAnyNumberOfThreads) {
  Workers workers;
  for (const int threads : {1, 2, 5, 3, 1, 8, 100'000})
    for (const std::int64_t n : {0, 1, 10, 10'000})
      EXPECT_EQ(n * (n - 1) / 2, sum(workers, threads, n)) << threads << " threads";
}

TEST(Workers, SeveralCallersHaveHelpersOfTheirOwn) {
  Workers workers;
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(499'500, sum(workers, 3, 1000));
    });
  for (std::thread& c : callers) c.join();
}

// Each part waits for the other: both threads work at the same time.
TEST(Workers, WorkBesideTheCaller) {
  Workers workers;
  workers.reserve(2);
  std::atomic<int> there{0};
  const auto part = [&] {
    ++there;
    while (there < 2) std::this_thread::yield();
  };
  workers.run(2, part);
  EXPECT_EQ(2, there);
}

TEST(Workers, PassOnWhatAPartThrows) {
  Workers workers;
  workers.reserve(2);
  std::atomic<int> there{0};
  const auto second_fails = [&] {
    const int mine = there++;
    while (there < 2) std::this_thread::yield();
    if (mine == 1) throw Error("out of paper");
  };
  expect_error([&] { workers.run(2, second_fails); }, {"out of paper"});
  EXPECT_EQ(45, sum(workers, 2, 10)) << "and go on";
}

}  // namespace
}  // namespace tandem::testing
