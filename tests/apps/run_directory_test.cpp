#include "run_directory.h"

#include <filesystem>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>

#include "cli.h"

namespace tandem::testing {
namespace {

using apps::RunDirectory;

class RunDirectories : public Cli {};

// The lock that the first run took is of a directory which no longer has a name.
TEST_F(RunDirectories, OfADirectoryThatIsRemovedBeforeItIsClaimedTheNewOneIsLocked) {
  apps::TrainOptions options;
  options.output = file("run");
  std::filesystem::create_directory(options.output);
  RunDirectory first(options);
  std::filesystem::remove(options.output);
  first.claim(options, /*in_place=*/false);
  ASSERT_TRUE(std::filesystem::is_directory(options.output));
  EXPECT_THROW(RunDirectory second(options), Error);
}

}  // namespace
}  // namespace tandem::testing
