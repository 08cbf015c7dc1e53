// CIFAR files of any contents: each record is read with a label in range, or is a BadSample. The first byte
// chooses the set.
#include <cstdlib>
#include <filesystem>

#include <tandem/core/base/error.h>
#include <tandem/datasets/cifar.h>

#include "../support/temporary_directory.h"
#include "fuzzed_file.h"

namespace {

namespace fs = std::filesystem;

// Holds links with the names of CIFAR's files.
const fs::path& directory() {
  static const tandem::testing::TemporaryDirectory temporary;
  static const fs::path path = temporary.path();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool ten = data[0] % 2 == 0;
  const tandem::testing::FuzzedFile input(data + 1, size - 1);
  const fs::path link = directory() / (ten ? "data_batch_1.bin" : "train.bin");
  fs::create_symlink(input.path(), link);
  try {
    const tandem::CifarDataset set(directory(), tandem::CifarSplit::train);
    tandem::Sample sample;
    for (std::int64_t i = 0; i < set.size(); ++i) try {
        set.get(0, i, sample);
        if (sample.labels.at(0) < 0 || sample.labels[0] >= set.classes()) std::abort();
      } catch (const tandem::BadSample&) {
      }
  } catch (const tandem::Error&) {
  }
  fs::remove(link);
  return 0;
}
