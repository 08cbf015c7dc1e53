// The record of a rank's calls, and the deadline that ends a run in which one waits too long.
#include <signal.h>

#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/collective_watch.h>

#include "expect_error.h"
#include "ranks.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 400ms;

// What watches tell, from all their threads.
class Told {
 public:
  std::function<void(const std::string&)> teller() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      all_ += text + "\n";
    };
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::string all_;
};

bool contains_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void sum(Comm& comm, std::uint64_t channel, std::int64_t batch) {
  float value = 1;
  comm.announce(channel, batch, "layer " + std::to_string(channel));
  comm.all_reduce_sum(&value, 1, DType::f32, all_ranks(comm.size()), channel);
}

TEST(CollectiveRecord, KeepsTheLastThousandCallsAndAllThatAreUnderWay) {
  CollectiveRecord record;
  record.announce(7, 3, "early");
  const std::size_t early = record.begin({.kind = CollectiveKind::receive, .peer = 1, .channel = 7});
  for (std::int64_t batch = 0; batch < 2500; ++batch) {
    record.announce(1, batch, "sum");
    record.end(record.begin({.kind = CollectiveKind::all_reduce, .channel = 1, .bytes = batch}), 1);
  }
  const auto calls = record.last(CollectiveRecord::kKept);
  ASSERT_EQ(calls.size(), CollectiveRecord::kKept);
  EXPECT_STREQ(calls[0].name, "early");
  EXPECT_EQ(calls[0].ended, 0);
  for (std::size_t i = 1; i < calls.size(); ++i) {
    ASSERT_EQ(calls[i].batch, 2499 - static_cast<std::int64_t>(calls.size() - 1 - i));
    ASSERT_EQ(calls[i].bytes, calls[i].batch);
  }
  EXPECT_EQ(record.state().open, 1);
  EXPECT_EQ(describe(record.state().oldest), "batch 3, receive of early (from rank 1, channel 7, 0 bytes)");
  record.end(early, 0);
  EXPECT_EQ(record.state().open, 0);
}

TEST(CollectiveRecord, CallsThatNothingAnnouncedAreBetweenRuns) {
  CollectiveRecord record;
  record.announce(1, 5, "sum");
  record.end(record.begin({.kind = CollectiveKind::all_reduce, .channel = 1}), 1);
  record.end(record.begin({.kind = CollectiveKind::send, .peer = 0, .channel = 1, .bytes = 1}), 0);
  const auto calls = record.last(10);
  EXPECT_EQ(describe(calls.at(0)), "batch 5, all-reduce of sum (channel 1, 0 bytes)");
  EXPECT_EQ(describe(calls.at(1)), "between two runs, send (to rank 0, channel 1, 1 byte)");
}

// Rank 1 runs a Program, and does not come to batch 3.
TEST(CollectiveWatch, NamesTheRankThatHangsAndTheCallThatWaits) {
  const TemporaryDirectory directory;
  Told told;
  const CommOptions options{.watch = WatchOptions{.deadline = kDeadline,
                                                  .directory = directory.path(),
                                                  .tell = told.teller(),
                                                  .advice = "read the manual"}};
  const double begin = steady_seconds();
  std::atomic<double> woken{0};
  const auto work = [&](Comm& comm) {
    comm.running(true);
    for (std::int64_t batch = 0; batch < 3; ++batch) sum(comm, 4, batch);
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(4 * kDeadline);
      return;
    }
    try {
      sum(comm, 4, 3);
    } catch (const Aborted& e) {
      woken = steady_seconds();
      throw;
    }
  };
  expect_error([&] { run_ranks(3, work, options); },
               {"the deadline of 0.4 s passes: rank 1 is in no call, and has hung or computed for",
                "after batch 2, all-reduce of layer 4 (channel 4, 4 bytes)", "rank 0 has waited for 0.",
                " s in batch 3, all-reduce of layer 4 (channel 4, 4 bytes); ", "rank 2 has waited for 0.",
                "; read the manual"});
  EXPECT_GE(woken - begin, 0.4);
  EXPECT_LT(woken - begin, 2.4);
  for (int rank = 0; rank < 3; ++rank) {
    std::ifstream file(directory.file("collectives-" + std::to_string(rank) + ".jsonl"));
    std::vector<nlohmann::json> calls;
    for (std::string line; std::getline(file, line);) calls.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(calls.size(), rank == 1 ? 3u : 4u);
    const nlohmann::json& last = calls.back();
    EXPECT_EQ(last.at("step"), rank == 1 ? 2 : 3);
    EXPECT_EQ(last.at("name"), "layer 4");
    EXPECT_EQ(last.at("kind"), "all-reduce");
    EXPECT_EQ(last.at("bytes"), 4);
    EXPECT_EQ(last.at("ended").is_null(), rank != 1);
    EXPECT_LE(calls[0].at("began"), calls[0].at("all_called"));
    EXPECT_LE(calls[0].at("all_called"), calls[0].at("ended"));
  }
  EXPECT_EQ(told.all(), "") << "the files say it, and the error";
}

// A rank waits for another that comes late, but before the deadline.
TEST(CollectiveWatch, TellsForWhomARankWaitsAndAgainRarer) {
  Told told;
  const CommOptions options{.watch =
                                WatchOptions{.deadline = 60s, .tell = told.teller(), .first_notice = 600ms}};
  const auto work = [&](Comm& comm) {
    comm.running(true);
    sum(comm, 4, 0);
    if (comm.rank() == 1) std::this_thread::sleep_for(4s);
    sum(comm, 4, 1);
  };
  run_ranks(3, work, options);
  const std::string all = told.all();
  EXPECT_EQ(std::ranges::count(all, '\n'), 3) << all;  // after 0.6, 1.2, 2.4 s, and the time to answer
  EXPECT_TRUE(contains_text(all, "rank 0 has waited")) << all;
  EXPECT_TRUE(contains_text(all, "s for rank 1 in batch 1, all-reduce of layer 4")) << all;
  EXPECT_TRUE(contains_text(
      all, "all-reduce of layer 4 (channel 4, 4 bytes), which is in no call, and has hung or computed"))
      << all;
}

TEST(CollectiveWatch, WaitsForARankThatIsBusyBetweenTwoRuns) {
  const auto work = [&](Comm& comm) {
    comm.running(true);
    sum(comm, 4, 0);
    comm.running(false);
    if (comm.rank() == 0) std::this_thread::sleep_for(3 * kDeadline);  // as long as a checkpoint may take
    comm.running(true);
    sum(comm, 4, 1);
  };
  run_ranks(2, work, {.watch = WatchOptions{kDeadline}});
}

// A job that is suspended for longer than its deadline goes on: both ranks are stopped while one waits.
TEST(CollectiveWatch, TimeForWhichAllRanksAreStoppedDoesNotCount) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not support threads after a fork";
#endif
  const pid_t job = fork();
  if (job == 0) {
    try {
      const auto work = [](Comm& comm) {
        comm.running(true);
        sum(comm, 4, 0);
        for (int i = 0; comm.rank() == 1 && i < 50; ++i) {  // 1 s, and the pause
          std::this_thread::sleep_for(20ms);
          if (i == 9) ::kill(getpid(), SIGSTOP);
        }
        sum(comm, 4, 1);
      };
      run_ranks(2, work, {.watch = WatchOptions{2s}});
      _exit(0);
    } catch (const std::exception&) {
      _exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(job, waitpid(job, &status, WUNTRACED));
  ASSERT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(3s);
  ::kill(job, SIGCONT);
  ASSERT_EQ(job, waitpid(job, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(CollectiveWatch, EndsRanksThatAllWaitForEachOther) {
  Told told;
  const CommOptions options{.watch = WatchOptions{kDeadline, "", told.teller()}};
  expect_error(
      [&] {
        run_ranks(
            2, [](Comm& comm) { sum(comm, comm.rank() == 0 ? 4 : 5, 7); }, options);
      },
      {"all ranks wait; rank 0 has waited for 0.", " s in batch 7, all-reduce of layer 4",
       "rank 1 has waited for 0.", " s in batch 7, all-reduce of layer 5"});
  for (const char* call : {"rank 0: batch 7, all-reduce of layer 4 (channel 4, 4 bytes), under way",
                           "rank 1: batch 7, all-reduce of layer 5 (channel 5, 4 bytes), under way"})
    EXPECT_TRUE(contains_text(told.all(), call)) << told.all();
}

// An abort wakes no rank that hangs outside of a call.
TEST(CollectiveWatch, EndsTheJobIfTheAbortDoesNot) {
  Told told;
  std::atomic<bool> hangs{true};
  const CommOptions options{
      .watch = WatchOptions{.deadline = kDeadline,
                            .tell = told.teller(),
                            .end = [&] { hangs = false; },
                            .lanes = [](int rank) { return "rank " + std::to_string(rank) + ": busy"; }}};
  const double begin = steady_seconds();
  EXPECT_THROW(run_ranks(
                   2,
                   [&](Comm& comm) {
                     comm.running(true);
                     while (comm.rank() == 1 && hangs) std::this_thread::sleep_for(1ms);
                     sum(comm, 4, 0);
                   },
                   options),
               Aborted);
  EXPECT_FALSE(hangs);
  EXPECT_LT(steady_seconds() - begin, 2.4 + 2);
  EXPECT_TRUE(contains_text(told.all(), "rank 1 is in no call, and has hung or computed for 0."))
      << told.all();
  for (const char* rank : {"0", "1"})
    EXPECT_TRUE(contains_text(told.all(), std::string("while the lanes are in:\nrank ") + rank + ": busy\n"))
        << told.all();
}

TEST(CollectiveRecord, LeavesFilesOfOthers) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("collectives-0.jsonl"), target = directory.file("mine");
  CollectiveCall call{};
  call.began = 1;
  write_collectives(file, {call});
  write_collectives(file, {call, call});  // its own is replaced
  EXPECT_EQ(2, std::ranges::count(read_file(file), '\n'));
  write_file(target, "mine");
  const auto expect_refused = [&] {
    expect_error([&] { write_collectives(file, {call}); }, {file, "no run wrote it", "stays"});
    EXPECT_EQ("mine", read_file(target));
  };
  std::filesystem::remove(file);
  std::filesystem::create_symlink(target, file);
  expect_refused();
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  expect_refused();
  std::filesystem::remove(file);
  std::filesystem::rename(target, file);
  expect_error([&] { write_collectives(file, {call}); }, {file, "no run wrote it", "stays"});
  EXPECT_EQ("mine", read_file(file));
}

}  // namespace
}  // namespace tandem::testing
