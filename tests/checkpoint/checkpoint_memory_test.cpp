// A save that runs out of memory, at any moment, ends with an exception, leaves the old checkpoint or the new
// one, and leaks neither memory nor open files.
#include <atomic>
#include <filesystem>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/train/checkpoint_writer.h>

#include "allocations.h"
#include "checkpoint_files.h"
#include "faulty_files.h"
#include "temporary_directory.h"

namespace tandem::testing {
using namespace engine;
namespace {

namespace fs = std::filesystem;

long open_files() {
  long count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class OutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef TANDEM_SANITIZED
    GTEST_SKIP() << "sanitizers bring their own allocator, whose calls cannot be made to fail";
#endif
  }
  /// Three checkpoints exist, so that the save must remove one.
  std::string fresh() {
    std::string directory = parent_.file(std::to_string(number_++));
    CheckpointStore store(directory, {}, files_);
    for (const int step : {5, 10}) store.save(step, checkpoint_files(step));
    return directory;
  }
  void expect_old_or_new(const std::string& directory) {
    const std::int64_t step = newest_step(directory);
    EXPECT_TRUE(step == 10 || step == 20) << step;
    CheckpointStore(directory, {}, files_).save(30, checkpoint_files(30));
    EXPECT_EQ(30, newest_step(directory));
    fs::remove_all(directory);
  }
  TemporaryDirectory parent_;
  FaultyFiles files_{Fault::none, -1};  // does not wait for the disk
  int number_ = 0;
};

TEST_F(OutOfMemory, AtAnyAllocationOfASaveIsACleanError) {
  const auto files = checkpoint_files(20);
  CheckpointStore(fresh(), {}, files_).save(20, files);  // makes the allocations that happen only once
  long failures = 0;
  for (bool failed = true; failed; ++failures) {
    SCOPED_TRACE("allocation " + std::to_string(failures));
    ASSERT_LT(failures, 10'000);
    const std::string directory = fresh();
    const long live = live_allocations(), open = open_files();
    failed = false;
    fail_allocation_after(failures);
    try {
      CheckpointStore(directory, {}, files_).save(20, files);
    } catch (const std::bad_alloc&) {
      failed = true;
    } catch (const Error&) {  // saved, but another could not be removed
      failed = true;
    }
    fail_allocation_after(-1);
    EXPECT_EQ(live, live_allocations());
    EXPECT_EQ(open, open_files());
    expect_old_or_new(directory);
  }
  std::cout << failures - 1 << " allocations failed\n";
  EXPECT_GT(failures, 100);
}

TEST_F(OutOfMemory, OnTheWritersThreadLetsTrainingContinue) {
  std::atomic<int> said = 0;
  long failures = 0;
  for (bool failed = true; failed; failures += 3) {
    SCOPED_TRACE("allocation " + std::to_string(failures));
    ASSERT_LT(failures, 10'000);
    const std::string directory = fresh();
    {
      CheckpointWriter writer(CheckpointStore(directory, {}, files_),
                              [&](std::int64_t, const std::string&) { ++said; });
      auto files = checkpoint_files(20);
      fail_allocation_after(failures);
      try {
        writer.save(20, std::move(files));
      } catch (const std::bad_alloc&) {
      }
      writer.wait();
      fail_allocation_after(-1);
      failed = newest_step(directory) != 20 || fs::exists(directory + "/step-5");
      if (newest_step(directory) == 10) {
        writer.save(21, checkpoint_files(21));
        writer.wait();
        EXPECT_EQ(21, newest_step(directory)) << "the writer continues";
      }
    }
    fs::remove_all(directory);
  }
  EXPECT_GT(failures, 100);
  EXPECT_GT(said.load(), 30);
}

}  // namespace
}  // namespace tandem::testing
