// Checkpoints on a disk that fails: there is always an older one, or the new one, never a mix.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/plan/checkpoint_writer.h>

#include "expect_error.h"
#include "faulty_files.h"
#include "power_cut.h"
#include "seed.h"
#include "temporary_directory.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::Fault;
using test::FaultyFiles;
using test::PowerCutFiles;
using test::TemporaryDirectory;

// What the files of a step hold: two of some kilobytes, one empty.
const std::vector<std::string> kNames{"model", "optimizer", "empty"};
std::string contents(std::int64_t step, const std::string& name) {
  std::string bytes;
  auto rng = test::generator(std::to_string(step) + name);
  for (int i = 0; name != "empty" && i < 3000; ++i) bytes += static_cast<char>(test::draw_int(rng, 0, 255));
  return bytes;
}

std::vector<CheckpointFile> files_of(std::int64_t step) {
  std::vector<CheckpointFile> files;
  for (const std::string& name : kNames)
    files.push_back({name, [bytes = contents(step, name)](const Sink& sink) {
                       const auto all = std::as_bytes(std::span(bytes));
                       sink(all.first(all.size() / 3));
                       sink(all.subspan(all.size() / 3));
                     }});
  return files;
}

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The newest checkpoint's step, which must have its contents, bit for bit; −1 where there is none.
std::int64_t newest_step(const std::string& directory) {
  std::vector<std::string> damaged;
  const auto newest = newest_checkpoint(directory, damaged);
  EXPECT_TRUE(damaged.empty()) << damaged[0];
  if (!newest) return -1;
  for (const std::string& name : kNames) EXPECT_EQ(contents(newest->step, name), read(newest->file(name)));
  return newest->step;
}

class Checkpoints : public ::testing::Test {
 protected:
  std::string fresh() {
    const std::string name = parent_.file(std::to_string(number_++));
    fs::create_directory(name);
    return name;
  }
  // How a save of step 20 ends that is done in another process: its signal, or 0.
  int save_elsewhere(const std::string& directory, FaultyFiles files) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        CheckpointStore(directory, {}, files).save(20, files_of(20));
      } catch (...) {
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  // How many calls a save of step 20 takes.
  int calls_of_a_save() {
    const std::string directory = fresh();
    CheckpointStore(directory).save(10, files_of(10));
    FaultyFiles counting(Fault::none, -1);
    CheckpointStore(directory, {}, counting).save(20, files_of(20));
    EXPECT_GT(counting.calls(), 20);
    return counting.calls();
  }
  TemporaryDirectory parent_;
  int number_ = 0;
};

TEST_F(Checkpoints, AreFoundByTheirSteps) {
  const std::string directory = parent_.file("a/b");
  EXPECT_EQ(-1, newest_step(directory));
  CheckpointStore store(directory);
  EXPECT_EQ(-1, newest_step(directory));
  for (const std::int64_t step : {0, 9, 10, 100}) {
    const Checkpoint saved = store.save(step, files_of(step), 0.5);
    EXPECT_EQ(directory + "/step-" + std::to_string(step), saved.path);
    EXPECT_EQ(step, newest_step(directory));
  }
  EXPECT_EQ((std::vector<std::int64_t>{10, 100}), checkpoint_steps(directory));
  EXPECT_EQ(0.5, read_checkpoint(directory + "/step-10/", CheckpointCheck::contents).score);
  expect_error([&] { store.save(100, files_of(100)); }, {"step-100' already"});
  expect_error([&] { store.save(101, files_of(1), 0.0 / 0.0); }, {"score"});
  fs::create_directory(directory + "/step-007");
  EXPECT_EQ(100, newest_step(directory)) << "names that Tandem does not write are not looked at";
}

TEST_F(Checkpoints, AreKeptAsAskedFor) {
  CheckpointStore store(parent_.file("a"), {.last = 2, .every = 40, .best = true});
  const std::vector<double> scores{1, 5, 2, 3, 5, 4, 4, 1, 0};
  for (std::size_t i = 0; i < scores.size(); ++i)
    store.save(static_cast<std::int64_t>(10 * (i + 1)), files_of(1), scores[i]);
  EXPECT_EQ((std::vector<std::int64_t>{40, 50, 80, 90}), checkpoint_steps(parent_.file("a")));
  expect_error([&] { CheckpointStore(parent_.file("b"), {.last = 1}); }, {"keeps the last 1", "2 at least"});
}

TEST_F(Checkpoints, DamagedOnesAreNotCountedAmongThoseKept) {
  CheckpointStore store(parent_.path());
  for (const int step : {10, 20}) store.save(step, files_of(step));
  fs::resize_file(parent_.file("step-20/model"), 5);
  store.save(30, files_of(30));
  EXPECT_EQ((std::vector<std::int64_t>{10, 20, 30}), checkpoint_steps(parent_.path()));
  store.save(20, files_of(20));
  EXPECT_EQ((std::vector<std::int64_t>{20, 30}), checkpoint_steps(parent_.path()))
      << "a damaged one is replaced";
}

TEST_F(Checkpoints, KilledAtAnyCallLeavesTheOldOrTheNew) {
  const int calls = calls_of_a_save();
  int old = 0;
  for (int at = 0; at < calls; ++at) {
    SCOPED_TRACE("killed at call " + std::to_string(at));
    const std::string directory = fresh();
    CheckpointStore(directory).save(10, files_of(10));
    EXPECT_EQ(SIGKILL, save_elsewhere(directory, FaultyFiles(Fault::killed, at)));
    const std::int64_t step = newest_step(directory);
    EXPECT_TRUE(step == 10 || step == 20) << step;
    old += step == 10;
    CheckpointStore(directory).save(30, files_of(30));
    EXPECT_EQ(30, newest_step(directory)) << "the next save is not in the way of what is left";
    for (const auto& entry : fs::directory_iterator(directory))
      EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
  }
  EXPECT_GT(old, 10);
  EXPECT_LT(old, calls);
}

// Three are there and one of them must go: also this can be cut short.
TEST_F(Checkpoints, KilledWhileOneIsRemovedLeavesTheOthers) {
  for (int at = 20;; ++at) {
    const std::string directory = fresh();
    for (const int step : {5, 10}) CheckpointStore(directory).save(step, files_of(step));
    const int signal = save_elsewhere(directory, FaultyFiles(Fault::killed, at));
    const std::int64_t step = newest_step(directory);
    EXPECT_TRUE(step == 10 || step == 20) << step;
    if (signal == 0) break;
    ASSERT_LT(at, 1000);
  }
}

TEST_F(Checkpoints, ErrorsAtAnyCallLeaveTheOldAndAreSaid) {
  const int calls = calls_of_a_save();
  for (const auto& [error, word, lasting] : {std::tuple{ENOSPC, "No space left on device", true},
                                             {EIO, "Input/output error", false},
                                             {EROFS, "Read-only", true}})
    for (int at = 0; at < calls; ++at) {
      SCOPED_TRACE(std::string(word) + " at call " + std::to_string(at));
      const std::string directory = fresh();
      CheckpointStore(directory).save(10, files_of(10));
      FaultyFiles files(Fault::error, at, error, lasting);
      expect_error([&] { CheckpointStore(directory, {}, files).save(20, files_of(20)); }, {word, directory});
      const std::int64_t step = newest_step(directory);
      EXPECT_TRUE(step == 10 || step == 20) << step;
      CheckpointStore store(directory);
      store.save(30, files_of(30));
      EXPECT_EQ(30, newest_step(directory));
    }
}

TEST_F(Checkpoints, AFileIsReplacedWhole) {
  const std::string file = parent_.file("weights");
  const auto replace = [&](Files& files, const std::string& text) {
    replace_durably(files, file, [&](const Sink& sink) { sink(std::as_bytes(std::span(text))); });
  };
  int failed = 0;
  for (bool more = true; more;) {
    replace(Files::system(), "old");
    FaultyFiles files(Fault::error, failed, EIO);
    try {
      replace(files, "new");
      more = false;
    } catch (const Error&) {
      ++failed;
      EXPECT_TRUE(read(file) == "old" || read(file) == "new") << read(file);
      EXPECT_FALSE(fs::exists(file + ".tmp"));
    }
  }
  EXPECT_GT(failed, 5) << "at every call";
  EXPECT_EQ("new", read(file));
}

TEST_F(Checkpoints, WhatIsNoCheckpointIsLeftAlone) {
  fs::create_directories(parent_.file("notes.tmp/inside"));
  std::ofstream(parent_.file("step-6.tmp")) << "a file";
  CheckpointStore(parent_.path()).save(5, files_of(5));
  EXPECT_TRUE(fs::exists(parent_.file("notes.tmp/inside")));
  EXPECT_TRUE(fs::exists(parent_.file("step-6.tmp")));
}

TEST_F(Checkpoints, InterruptedCallsAndShortWritesAreGoneOnWith) {
  const int calls = calls_of_a_save();
  for (const Fault fault : {Fault::error, Fault::short_write})
    for (int at = 0; at < calls; ++at) {
      SCOPED_TRACE("call " + std::to_string(at));
      const std::string directory = fresh();
      CheckpointStore(directory).save(10, files_of(10));
      FaultyFiles files(fault, at, EINTR);
      CheckpointStore(directory, {}, files).save(20, files_of(20));
      EXPECT_EQ(20, newest_step(directory));
    }
}

// A disk keeps what was synced, and of the rest what it likes.
TEST_F(Checkpoints, APowerCutAtAnyCallLeavesTheOldOrTheNew) {
  for (const auto luck : {PowerCutFiles::Luck{false, false}, {true, false}, {false, true}, {true, true}})
    for (int at = 0;; ++at) {
      SCOPED_TRACE("cut at call " + std::to_string(at) + ", unsynced names " +
                   (luck.names ? "kept" : "lost"));
      const std::string directory = fresh(), left = fresh();
      PowerCutFiles files(directory);
      CheckpointStore store(directory, {}, files);
      for (const int step : {5, 10}) store.save(step, files_of(step));
      const int begin = files.calls();
      files.cut_at(begin + at, luck, left);
      store.save(20, files_of(20));
      if (files.calls() <= begin + at) break;
      const std::int64_t step = newest_step(left);
      EXPECT_TRUE(step == 10 || step == 20) << step;
    }
}

TEST_F(Checkpoints, EveryFlippedBitIsFoundAndTheOneBeforeTaken) {
  auto rng = test::generator("flips");
  CheckpointStore store(parent_.path());
  for (const int step : {10, 20}) store.save(step, files_of(step));
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(parent_.file("step-20")))
    if (entry.file_size() > 0) files.push_back(entry.path().string());
  ASSERT_EQ(3u, files.size()) << "two with contents, and the manifest";
  for (int i = 0; i < 1000; ++i) {
    const std::string& file = files[static_cast<std::size_t>(i) % files.size()];
    const int at = test::draw_int(rng, 0, static_cast<int>(fs::file_size(file)) - 1),
              bit = test::draw_int(rng, 0, 7);
    const std::string before = read(file);
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](char c) { stream.seekp(at).put(c).flush(); };
    put(static_cast<char>(before[static_cast<std::size_t>(at)] ^ (1 << bit)));
    std::vector<std::string> damaged;
    const auto newest = newest_checkpoint(parent_.path(), damaged);
    ASSERT_TRUE(newest) << file << " bit " << bit << " of byte " << at;
    EXPECT_EQ(10, newest->step) << file << " bit " << bit << " of byte " << at;
    ASSERT_EQ(1u, damaged.size());
    EXPECT_NE(std::string::npos, damaged[0].find("step-20")) << damaged[0];
    put(before[static_cast<std::size_t>(at)]);
  }
  EXPECT_EQ(20, newest_step(parent_.path()));
}

TEST_F(Checkpoints, FilesCutShortMissingOrOfAnotherStepAreFound) {
  CheckpointStore store(parent_.path());
  store.save(10, files_of(10));
  const std::string manifest = read(parent_.file("step-10/manifest.json"));
  for (std::size_t n = 0; n < manifest.size(); ++n) {
    fs::resize_file(parent_.file("step-10/manifest.json"), manifest.size() - 1 - n);
    EXPECT_THROW(read_checkpoint(parent_.file("step-10"), CheckpointCheck::sizes), Error) << n;
  }
  std::ofstream(parent_.file("step-10/manifest.json")) << manifest;
  fs::rename(parent_.file("step-10"), parent_.file("step-11"));
  expect_error([&] { read_checkpoint(parent_.file("step-11"), CheckpointCheck::sizes); },
               {"of step 10", "of 11"});
  fs::rename(parent_.file("step-11"), parent_.file("elsewhere"));
  EXPECT_EQ(10, read_checkpoint(parent_.file("elsewhere"), CheckpointCheck::contents).step)
      << "a copy has any name";
  fs::remove(parent_.file("elsewhere/empty"));
  expect_error([&] { read_checkpoint(parent_.file("elsewhere"), CheckpointCheck::sizes); },
               {"elsewhere/empty"});
  std::string outside = manifest;
  outside.replace(outside.find("\"model\""), 7, "\"../model\"");
  std::ofstream(parent_.file("elsewhere/manifest.json")) << outside;
  expect_error([&] { read_checkpoint(parent_.file("elsewhere"), CheckpointCheck::sizes); },
               {"'../model' is no name"});
}

TEST_F(Checkpoints, AreWrittenWhileOthersWork) {
  std::latch begun(1), go_on(1);
  std::atomic<int> failures = 0;
  CheckpointWriter writer(CheckpointStore(parent_.path()), [&](std::int64_t step, const std::string& why) {
    ++failures;
    EXPECT_EQ(2, step);
    EXPECT_EQ("no such luck", why);
  });
  auto slow = files_of(1);
  slow.push_back({"slow", [&](const Sink&) {
                    begun.count_down();
                    go_on.wait();
                  }});
  writer.save(1, slow);
  begun.wait();
  EXPECT_TRUE(checkpoint_steps(parent_.path()).empty()) << "it is not there before it is whole";
  go_on.count_down();
  writer.save(2, {{"bad", [](const Sink&) { throw Error("no such luck"); }}});
  writer.save(3, files_of(3));
  writer.wait();
  EXPECT_EQ(1, failures);
  EXPECT_EQ((std::vector<std::int64_t>{1, 3}), checkpoint_steps(parent_.path()));
}

}  // namespace
}  // namespace tandem
