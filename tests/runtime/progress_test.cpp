// Waiting for a counter: no waiter is forgotten, and none is woken too early.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <chrono>
#include <thread>
#include <vector>

#include <tandem/core/runtime/progress.h>

#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

using namespace std::chrono_literals;

TEST(Progress, WaiterReturnsWhenTheTargetIsReached) {
  Progress p;
  std::atomic<bool> stop{false}, reached{false};
  std::thread waiter([&] {
    p.wait_for(2, stop);
    reached = true;
  });
  p.advance_to(1);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(reached);
  p.advance_to(2);
  waiter.join();
  EXPECT_TRUE(reached);
}

TEST(Progress, StopEndsTheWait) {
  Progress p;
  std::atomic<bool> stop{false};
  std::thread waiter([&] { p.wait_for(1, stop); });
  std::this_thread::sleep_for(5ms);
  stop = true;
  p.wake();
  waiter.join();
  EXPECT_EQ(p.value(), 0u);
}

// A waiter for the last value sleeps through everything before it.
TEST(Progress, AWaiterIsNotWokenBeforeItsTarget) {
  constexpr int kSteps = 500;
  Progress p;
  std::atomic<bool> stop{false};
  std::atomic<long> switches{0};
  std::thread waiter([&] {
    p.wait_for(kSteps, stop);
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    switches = usage.ru_nvcsw;
  });
  for (int i = 1; i <= kSteps; ++i) {
    std::this_thread::sleep_for(100us);
    p.advance_to(static_cast<std::uint64_t>(i));
  }
  waiter.join();
  EXPECT_LT(switches, kSteps / 10) << "the waiter went to sleep too often";
}

// Several waiters have their own targets, and one thread advances in irregular steps: a missed wake-up hangs.
TEST(Progress, NoWaiterIsForgotten) {
  auto rng = generator("progress");
  for (int round = 0; round < 200; ++round) {
    constexpr std::uint64_t kEnd = 400;
    Progress p;
    std::atomic<bool> stop{false};
    std::vector<std::thread> waiters;
    for (int w = 0; w < 3; ++w)
      waiters.emplace_back([&, step = static_cast<std::uint64_t>(draw_int(rng, 1, 60))] {
        for (std::uint64_t target = step; target <= kEnd; target += step) {
          p.wait_for(target, stop);
          if (p.value() < target) ADD_FAILURE() << "woken at " << p.value() << ", not " << target;
        }
      });
    for (std::uint64_t value = 0; value < kEnd;) {
      value = std::min(kEnd, value + static_cast<std::uint64_t>(draw_int(rng, 1, 20)));
      if (draw_bool(rng, 0.1)) std::this_thread::sleep_for(std::chrono::microseconds(draw_int(rng, 0, 30)));
      p.advance_to(value);
    }
    for (auto& t : waiters) t.join();
  }
}

}  // namespace
}  // namespace tandem::testing
