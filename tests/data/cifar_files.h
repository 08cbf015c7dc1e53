#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/datasets/cifar.h>

#include "expect_error.h"
#include "temporary_directory.h"

namespace tandem::testing {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

inline constexpr std::int64_t kPlane = kCifarSide * kCifarSide;
inline constexpr std::size_t kRecord10 = 3073, kRecord100 = 3074;

inline Bytes read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

inline void write(const fs::path& file, const Bytes& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

/// One record: the label bytes, then 3072 pixel bytes counting up from `first`.
inline Bytes record(Bytes labels, int first = 0) {
  for (std::int64_t i = 0; i < kCifarImageBytes; ++i) labels.push_back(static_cast<std::uint8_t>(first + i));
  return labels;
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Each test has its own empty directory.
class CifarFiles : public ::testing::Test {
 protected:
  void expect_train_error(const std::vector<std::string>& words) const {
    expect_error([&] { load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10); }, words);
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(dir_)) found.insert(entry.path().filename().string());
    return found;
  }

  const std::set<std::string> kSetNames{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                                        "batches.meta.txt", "drawn.xxh3"};
  const TemporaryDirectory directory_;
  fs::path dir_ = directory_.path();
};

}  // namespace tandem::testing
