// The effects of the first and of the second Ctrl-C.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "signal_watch.h"

namespace tandem::apps {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class SignalWatches : public ::testing::Test {
 protected:
  SignalWatches() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void wait_for(const std::atomic<bool>& happened) {
  while (!happened) std::this_thread::sleep_for(1ms);
}

// In a process of its own, because signals can go to any thread that was there before the watch.
TEST_F(SignalWatches, PassOnTheFirstSignalAndWaitForItsCallback) {
  EXPECT_EXIT(
      {
        SignalWatch watch;
        std::atomic<int> told = 0;
        {
          std::atomic<bool> began = false;
          const SignalWatch::During during(watch, [&](int signal) {
            began = true;
            std::this_thread::sleep_for(20ms);
            told = signal;
          });
          kill(getpid(), SIGTERM);
          wait_for(began);
        }
        std::_Exit(told == SIGTERM && watch.signal() == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$")
      << "the callback returns before the watch ends";
}

TEST_F(SignalWatches, ASecondSignalEndsTheProcessWhileTheFirstIsHandled) {
  for (const auto& [second, status] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const auto start = Clock::now();
    EXPECT_EXIT(
        {
          SignalWatch watch;
          std::atomic<bool> began = false;
          const SignalWatch::During during(watch, [&](int) {
            began = true;
            std::this_thread::sleep_for(60s);
          });
          kill(getpid(), SIGINT);
          wait_for(began);
          std::this_thread::sleep_for(600ms);
          kill(getpid(), second);
          std::this_thread::sleep_for(60s);
        },
        ::testing::ExitedWithCode(status), "ends at once");
    EXPECT_LT(Clock::now() - start, 10s);
  }
}

// As from `timeout`, which signals the process and then its group.
TEST_F(SignalWatches, ASignalThatComesTwiceAtOnceIsOne) {
  EXPECT_EXIT(
      {
        SignalWatch watch;
        std::atomic<int> told = 0;
        {
          std::atomic<bool> began = false;
          const SignalWatch::During during(watch, [&](int) {
            began = true;
            std::this_thread::sleep_for(50ms);
            ++told;
          });
          for (const int signal : {SIGTERM, SIGINT, SIGTERM}) {
            kill(getpid(), signal);
            wait_for(began);
          }
        }
        std::_Exit(told == 1 && watch.signal() == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(SignalWatches, AnUnwatchedSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        SignalWatch watch;
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(60s);
      },
      ::testing::ExitedWithCode(130), "interrupted");
}

TEST_F(SignalWatches, WhatIsToBeDoneBeforeTheEndIsDone) {
  EXPECT_EXIT(
      {
        SignalWatch watch;
        const SignalWatch::BeforeEnd first(watch, [] { std::fputs("first, ", stderr); });
        {
          const SignalWatch::BeforeEnd gone(watch, [] { std::fputs("gone, ", stderr); });
        }
        kill(getpid(), SIGTERM);
        std::this_thread::sleep_for(60s);
      },
      ::testing::ExitedWithCode(143), "^first, .*terminated");
}

TEST_F(SignalWatches, ASignalBetweenTwoDuringsEndsTheProcess) {
  EXPECT_EXIT(
      {
        SignalWatch watch;
        {
          const SignalWatch::During during(watch, [](int) {});
        }
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(60s);
      },
      ::testing::ExitedWithCode(130), "interrupted");
}

}  // namespace
}  // namespace tandem::apps
