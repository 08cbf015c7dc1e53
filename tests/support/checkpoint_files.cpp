#include "checkpoint_files.h"

#include <gtest/gtest.h>

#include "seed.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;

const std::vector<std::string> kCheckpointFiles{"model", "optimizer", "empty"};

std::string checkpoint_contents(std::int64_t step, const std::string& name) {
  std::string bytes;
  auto rng = generator(std::to_string(step) + name);
  for (int i = 0; name != "empty" && i < 3000; ++i) bytes += static_cast<char>(draw_int(rng, 0, 255));
  return bytes;
}

std::vector<CheckpointFile> checkpoint_files(std::int64_t step) {
  std::vector<CheckpointFile> files;
  for (const std::string& name : kCheckpointFiles)
    files.push_back({name, [bytes = checkpoint_contents(step, name)](const Sink& sink) {
                       const auto all = std::as_bytes(std::span(bytes));
                       sink(all.first(all.size() / 3));
                       sink(all.subspan(all.size() / 3));
                     }});
  return files;
}

std::int64_t newest_step(const std::string& directory, std::size_t damaged) {
  std::vector<std::string> found;
  const auto newest = newest_checkpoint(directory, found);
  EXPECT_EQ(damaged, found.size()) << (found.empty() ? "" : found[0]);
  if (!newest) return -1;
  for (const std::string& name : kCheckpointFiles)
    EXPECT_EQ(checkpoint_contents(newest->step, name), read_file(newest->file(name))) << name;
  return newest->step;
}

}  // namespace tandem::testing
