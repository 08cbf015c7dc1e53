#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/train/checkpoint_store.h>

#include "test_files.h"

namespace tandem::testing {

/// What the checkpoints of these tests hold: two files of some kilobytes, one empty.
extern const std::vector<std::string> kCheckpointFiles;
std::string checkpoint_contents(std::int64_t step, const std::string& name);
std::vector<CheckpointFile> checkpoint_files(std::int64_t step);

/// The newest checkpoint's step, which must have its contents, bit for bit; −1 where there is none. Beside it
/// there may be as many damaged ones as expected, no more.
std::int64_t newest_step(const std::string& directory, std::size_t damaged = 0);

}  // namespace tandem::testing
