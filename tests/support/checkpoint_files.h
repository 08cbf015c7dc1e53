#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/train/checkpoint_store.h>

#include "test_files.h"

namespace tandem::testing {

/// The files of these tests' checkpoints: two of some kilobytes, and an empty one.
extern const std::vector<std::string> kCheckpointFiles;
std::string checkpoint_contents(std::int64_t step, const std::string& name);
std::vector<CheckpointFile> checkpoint_files(std::int64_t step);

/// The step of the newest checkpoint, which must have the contents of its step, bit for bit; −1 if there is
/// none. There must be exactly `damaged` damaged ones.
std::int64_t newest_step(const std::string& directory, std::size_t damaged = 0);

}  // namespace tandem::testing
