// Checkpoints on a failing disk: the old one or the new one always exists, never a mix.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/train/checkpoint_writer.h>

#include "checkpoint_files.h"
#include "expect_error.h"
#include "faulty_files.h"
#include "power_cut.h"
#include "seed.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;
namespace {

namespace fs = std::filesystem;

class Checkpoints : public ::testing::Test {
 protected:
  std::string fresh() {
    std::string name = parent_.file(std::to_string(number_++));
    fs::create_directory(name);
    return name;
  }
  // How a save of step 20 in another process ends: its signal, or 0.
  int save_elsewhere(const std::string& directory, FaultyFiles files) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        CheckpointStore(directory, {}, files).save(20, checkpoint_files(20));
      } catch (...) {
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  // The number of calls in a save of step 20.
  int calls_of_a_save() {
    const std::string directory = fresh();
    CheckpointStore(directory).save(10, checkpoint_files(10));
    FaultyFiles counting(Fault::none, -1);
    CheckpointStore(directory, {}, counting).save(20, checkpoint_files(20));
    EXPECT_GT(counting.calls(), 20);
    return counting.calls();
  }
  TemporaryDirectory parent_;
  int number_ = 0;
};

// As if another process made each directory a moment earlier.
class Outrun final : public Files {
  int mkdir(const std::string& path) override { return Files::mkdir(path), Files::mkdir(path); }
};

TEST_F(Checkpoints, AreSavedIfAnotherProcessMakesTheDirectoryFirst) {
  Outrun files;
  make_directories(files, parent_.file("a/b"));
  EXPECT_TRUE(fs::is_directory(parent_.file("a/b")));
  make_directories(Files::system(), parent_.file("c/../a/d/.."));
  EXPECT_TRUE(fs::is_directory(parent_.file("a/d")));
  std::ofstream(parent_.file("e")) << "a file";
  expect_error([&] { make_directories(files, parent_.file("e/f")); }, {"/e' is not a directory"});
}

TEST_F(Checkpoints, AreFoundByTheirSteps) {
  const std::string directory = parent_.file("a/b");
  EXPECT_EQ(-1, newest_step(directory));
  CheckpointStore store(directory);
  EXPECT_EQ(-1, newest_step(directory));
  for (const std::int64_t step : {0, 9, 10, 100}) {
    const Checkpoint saved = store.save(step, checkpoint_files(step), 0.5);
    EXPECT_EQ(directory + "/step-" + std::to_string(step), saved.path);
    EXPECT_EQ(step, newest_step(directory));
  }
  EXPECT_EQ((std::vector<std::int64_t>{10, 100}), checkpoint_steps(directory));
  EXPECT_EQ(0.5, read_checkpoint(directory + "/step-10/", CheckpointCheck::contents).score);
  expect_error([&] { store.save(100, checkpoint_files(100)); }, {"step-100' already"});
  expect_error([&] { store.save(101, checkpoint_files(1), 0.0 / 0.0); }, {"score"});
  fs::create_directory(directory + "/step-007");
  EXPECT_EQ(100, newest_step(directory)) << "names that Tandem does not write are ignored";
}

// A run that resumes from an older checkpoint: what it saves is the newest, or is refused.
TEST_F(Checkpoints, AreNotSavedIfALaterOneExists) {
  CheckpointStore store(parent_.file("a"));
  for (const std::int64_t step : {10, 20, 30}) store.save(step, checkpoint_files(step));
  expect_error([&] { store.save(25, checkpoint_files(25)); },
               {"step-25", "newest", "step-30", "remove_after(25)"});
  EXPECT_EQ((std::vector<std::int64_t>{20, 30}), checkpoint_steps(parent_.file("a")));
  store.remove_after(20);
  store.save(25, checkpoint_files(25));
  EXPECT_EQ((std::vector<std::int64_t>{20, 25}), checkpoint_steps(parent_.file("a")));
  EXPECT_EQ(25, newest_step(parent_.file("a")));
}

TEST_F(Checkpoints, AreKeptByTheGivenRules) {
  CheckpointStore store(parent_.file("a"), {.last = 2, .every = 40, .best = true});
  const std::vector<double> scores{1, 5, 2, 3, 5, 4, 4, 1, 0};
  for (std::size_t i = 0; i < scores.size(); ++i)
    store.save(static_cast<std::int64_t>(10 * (i + 1)), checkpoint_files(1), scores[i]);
  EXPECT_EQ((std::vector<std::int64_t>{40, 50, 80, 90}), checkpoint_steps(parent_.file("a")));
  expect_error([&] { CheckpointStore(parent_.file("b"), {.last = 1}); }, {"keeps the last 1", "at least 2"});
}

// Also if its files have the sizes that they had.
TEST_F(Checkpoints, AChangedOneStays) {
  CheckpointStore store(parent_.file("a"));
  for (const int step : {10, 20}) store.save(step, checkpoint_files(step));
  const std::string changed = parent_.file("a/step-10/" + checkpoint_files(10)[0].name);
  std::string bytes = read_file(changed);
  ++bytes.at(0);
  std::ofstream(changed) << bytes;
  for (const int step : {30, 40, 50}) store.save(step, checkpoint_files(step));
  EXPECT_EQ((std::vector<std::int64_t>{10, 40, 50}), checkpoint_steps(parent_.file("a")));
  EXPECT_EQ(bytes, read_file(changed));
}

TEST_F(Checkpoints, AKillAtAnyCallLeavesTheOldOrTheNewCheckpoint) {
  const int calls = calls_of_a_save();
  int old = 0;
  for (int at = 0; at < calls; ++at) {
    SCOPED_TRACE("killed at call " + std::to_string(at));
    const std::string directory = fresh();
    CheckpointStore(directory).save(10, checkpoint_files(10));
    EXPECT_EQ(SIGKILL, save_elsewhere(directory, FaultyFiles(Fault::killed, at)));
    const std::int64_t step = newest_step(directory);
    EXPECT_TRUE(step == 10 || step == 20) << step;
    old += step == 10;
    CheckpointStore(directory).save(30, checkpoint_files(30));
    EXPECT_EQ(30, newest_step(directory)) << "the next save is not in the way of what is left";
    for (const auto& entry : fs::directory_iterator(directory))
      EXPECT_TRUE(checkpoint_step(entry.path().filename().string())) << entry.path();
  }
  EXPECT_GT(old, 10);
  EXPECT_LT(old, calls);
}

// Three checkpoints exist and one must be removed, which can also be interrupted.
TEST_F(Checkpoints, AKillDuringARemovalLeavesTheOthers) {
  for (int at = 20;; ++at) {
    const std::string directory = fresh();
    for (const int step : {5, 10}) CheckpointStore(directory).save(step, checkpoint_files(step));
    const int signal = save_elsewhere(directory, FaultyFiles(Fault::killed, at));
    const std::int64_t step = newest_step(directory);
    EXPECT_TRUE(step == 10 || step == 20) << step;
    if (signal == 0) break;
    ASSERT_LT(at, 1000);
  }
}

TEST_F(Checkpoints, AnErrorAtAnyCallIsReportedAndLeavesTheOldCheckpoint) {
  const int calls = calls_of_a_save();
  for (const auto& [error, word, lasting] : {std::tuple{ENOSPC, "No space left on device", true},
                                             {EIO, "Input/output error", false},
                                             {EROFS, "Read-only", true}})
    for (int at = 0; at < calls; ++at) {
      SCOPED_TRACE(std::string(word) + " at call " + std::to_string(at));
      const std::string directory = fresh();
      CheckpointStore(directory).save(10, checkpoint_files(10));
      FaultyFiles files(Fault::error, at, error, lasting);
      expect_error([&] { CheckpointStore(directory, {}, files).save(20, checkpoint_files(20)); },
                   {word, directory});
      const std::int64_t step = newest_step(directory);
      EXPECT_TRUE(step == 10 || step == 20) << step;
      CheckpointStore store(directory);
      store.save(30, checkpoint_files(30));
      EXPECT_EQ(30, newest_step(directory));
    }
}

TEST_F(Checkpoints, AFileIsReplacedAtomically) {
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
      const std::string left = read_file(file);
      EXPECT_TRUE(left == "old" || left == "new") << left;
      EXPECT_FALSE(fs::exists(unfinished_name(file)));
    }
  }
  EXPECT_GT(failed, 5) << "too few calls failed";
  EXPECT_EQ("new", read_file(file));
}

TEST_F(Checkpoints, OtherFilesAreLeftAlone) {
  const std::vector<std::string> names = {"notes.tandem-tmp/inside", "step-best.tandem-tmp/inside",
                                          "step-07.tandem-tmp/inside", "step-7.tmp/inside"};
  for (const std::string& name : names) fs::create_directories(parent_.file(name));
  std::ofstream(parent_.file("step-6.tandem-tmp")) << "a file";
  CheckpointStore(parent_.path()).save(5, checkpoint_files(5));
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(parent_.file(name))) << name;
  EXPECT_TRUE(fs::exists(parent_.file("step-6.tandem-tmp")));
  // People's copies have names like these.
  for (const std::string copy : {"step-5.old", "step-5.tmp", "step-5.bak"})
    fs::copy(parent_.file("step-5"), parent_.file(copy));
  CheckpointStore(parent_.path()).save(8, checkpoint_files(8));
  for (const std::string copy : {"step-5.old", "step-5.tmp", "step-5.bak"})
    EXPECT_NO_THROW(read_checkpoint(parent_.file(copy), CheckpointCheck::contents)) << copy;
}

TEST_F(Checkpoints, InterruptedCallsAndShortWritesAreContinued) {
  const int calls = calls_of_a_save();
  for (const Fault fault : {Fault::error, Fault::short_write})
    for (int at = 0; at < calls; ++at) {
      SCOPED_TRACE("call " + std::to_string(at));
      const std::string directory = fresh();
      CheckpointStore(directory).save(10, checkpoint_files(10));
      FaultyFiles files(fault, at, EINTR);
      CheckpointStore(directory, {}, files).save(20, checkpoint_files(20));
      EXPECT_EQ(20, newest_step(directory));
    }
}

// A disk keeps what was synced, and any part of the rest.
TEST_F(Checkpoints, APowerCutAtAnyCallLeavesTheOldOrTheNewCheckpoint) {
  auto rng = generator("luck");
  std::vector<PowerCutFiles::Luck> lucks{{false, false}, {true, false}, {false, true}, {true, true}};
  for (int i = 0; i < 6; ++i) lucks.push_back({.chance = &rng});
  for (const auto& luck : lucks)
    for (int at = 0;; ++at) {
      SCOPED_TRACE("cut at call " + std::to_string(at) + ", unsynced names " +
                   (luck.chance  ? "kept by chance"
                    : luck.names ? "kept"
                                 : "lost"));
      const std::string directory = fresh(), left = fresh();
      PowerCutFiles files(directory);
      CheckpointStore store(directory, {}, files);
      for (const int step : {5, 10}) store.save(step, checkpoint_files(step));
      const int begin = files.calls();
      files.cut_at(begin + at, luck, left);
      store.save(20, checkpoint_files(20));
      if (files.calls() <= begin + at) break;
      const std::int64_t step = newest_step(left);
      EXPECT_TRUE(step == 10 || step == 20) << step;
    }
}

// The damaged one stays on the disk until its successor exists.
TEST_F(Checkpoints, APowerCutDuringTheReplacementOfADamagedOneLeavesTheOthers) {
  auto rng = generator("luck of a replacement");
  for (int at = 0;; ++at) {
    SCOPED_TRACE("cut at call " + std::to_string(at));
    const std::string directory = fresh(), left = fresh();
    PowerCutFiles files(directory);
    CheckpointStore store(directory, {}, files);
    for (const int step : {10, 20}) store.save(step, checkpoint_files(step));
    std::ofstream(directory + "/step-20/model", std::ios::app) << "more";
    const int begin = files.calls();
    files.cut_at(begin + at, {.chance = &rng}, left);
    store.save(20, checkpoint_files(20));
    EXPECT_EQ(20, newest_step(directory));
    if (files.calls() <= begin + at) break;
    std::vector<std::string> damaged;
    const auto newest = newest_checkpoint(left, damaged);  // the account does not include the damage
    ASSERT_TRUE(newest);
    EXPECT_TRUE(newest->step == 10 || newest->step == 20) << newest->step;
  }
}

TEST_F(Checkpoints, InvalidFileNamesAreRefusedBeforeAnythingIsWritten) {
  CheckpointStore store(parent_.path());
  const auto file = [](const std::string& name) { return CheckpointFile{name, [](const Sink&) {}}; };
  for (const std::string name : {"", "../up", "a/b", ".hidden", "manifest.json", "\xff", ".", "a b", "ü"})
    EXPECT_THROW(store.save(1, {file(name)}), Error) << name;
  EXPECT_THROW(store.save(1, {file(std::string("a\0b", 3))}), Error);
  expect_error([&] { store.save(1, {file("a"), file("a")}); }, {"two files called 'a'"});
  expect_error([&] { store.save(-1, {file("a")}); }, {"step -1"});
  EXPECT_TRUE(fs::is_empty(parent_.path()));
}

TEST_F(Checkpoints, DirectoriesMayBeGivenInAnySpelling) {
  for (const std::string name : {"a/b/", "c//d", "e/./f/../g/"}) {
    CheckpointStore(parent_.file(name)).save(1, checkpoint_files(1));
    EXPECT_EQ(1, newest_step(parent_.file(name))) << name;
  }
}

// The target of a link belongs to the user who made the link.
TEST_F(Checkpoints, RemovingALinkKeepsItsTarget) {
  CheckpointStore store(parent_.path());
  store.save(10, checkpoint_files(10));
  fs::rename(parent_.file("step-10"), parent_.file("kept"));
  fs::create_directory_symlink(parent_.file("kept"), parent_.file("step-10"));
  for (const int step : {20, 30}) store.save(step, checkpoint_files(step));
  EXPECT_EQ((std::vector<std::int64_t>{20, 30}), checkpoint_steps(parent_.path()));
  EXPECT_EQ(10, read_checkpoint(parent_.file("kept"), CheckpointCheck::contents).step);
}

// An unreadable directory may be full of checkpoints.
TEST_F(Checkpoints, AnUnreadableDirectoryIsAnError) {
  std::ofstream(parent_.file("file")) << "no directory";
  std::vector<std::string> damaged;
  expect_error([&] { newest_checkpoint(parent_.file("file"), damaged); }, {"cannot read directory", "file"});
  fs::create_symlink("loop", parent_.file("loop"));
  EXPECT_THROW(newest_checkpoint(parent_.file("loop"), damaged), Error);
}

TEST_F(Checkpoints, AreWrittenInTheBackground) {
  std::latch begun(1), go_on(1);
  std::atomic<int> failures = 0;
  CheckpointWriter writer(CheckpointStore(parent_.path()), [&](std::int64_t step, const std::string& why) {
    ++failures;
    EXPECT_EQ(2, step);
    EXPECT_EQ("no such luck", why);
  });
  auto slow = checkpoint_files(1);
  slow.push_back({"slow", [&](const Sink&) {
                    begun.count_down();
                    go_on.wait();
                  }});
  writer.save(1, slow);
  begun.wait();
  EXPECT_TRUE(checkpoint_steps(parent_.path()).empty()) << "a checkpoint appears only when it is complete";
  go_on.count_down();
  writer.save(2, {{"bad", [](const Sink&) { throw Error("no such luck"); }}});
  writer.save(3, checkpoint_files(3));
  writer.wait();
  EXPECT_EQ(1, failures);
  EXPECT_EQ((std::vector<std::int64_t>{1, 3}), checkpoint_steps(parent_.path()));
}

}  // namespace
}  // namespace tandem::testing
