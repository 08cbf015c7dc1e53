// Drawn images in CIFAR-10's files: their bytes, and what stays when they are written.
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <span>
#include <utility>

#include <tandem/core/base/error.h>
#include <tandem/datasets/cifar_writer.h>
#include <tandem/datasets/draw.h>
#include <tandem/datasets/drawn_dataset.h>

#include "cifar_files.h"
#include "seed.h"

namespace tandem::testing {
namespace {

using CifarWriter = CifarFiles;
using CifarWriterRefuses = CifarFiles;

TEST_F(CifarWriter, WritesCifar10sOwnLayoutToTheByte) {
  const std::uint64_t seed = run_seed();
  write_cifar10(dir_ / "new/folder", 20, 3, seed);
  dir_ /= "new/folder";
  EXPECT_EQ(names(), kSetNames);
  const auto expect_records = [&](const std::string& file, std::int64_t first, std::int64_t count) {
    Bytes want, image(kCifarImageBytes);
    for (std::int64_t i = first; i < first + count; ++i) {
      const int label = draw_image(seed, i, std::span(image).first<kCifarImageBytes>());
      want.push_back(static_cast<std::uint8_t>(label));
      for (std::int64_t c = 0; c < 3; ++c)
        for (std::int64_t p = 0; p < kPlane; ++p) want.push_back(image[p * 3 + c]);
    }
    EXPECT_EQ(read(dir_ / file).size(), count * kRecord10) << file;
    EXPECT_TRUE(read(dir_ / file) == want) << file;
  };
  for (int i = 0; i < 5; ++i) expect_records("data_batch_" + std::to_string(i + 1) + ".bin", 4 * i, 4);
  expect_records("test_batch.bin", kFirstDrawnTestIndex, 3);

  const Bytes meta = read(dir_ / "batches.meta.txt");
  EXPECT_EQ(
      std::string(meta.begin(), meta.end()),
      "disc\nring\nsquare\ntriangle\ncross\nstar\nhorizontal_stripes\nvertical_stripes\ncheckerboard\ndots\n");
}

TEST_F(CifarWriter, ARoundTripGivesTheSameImages) {
  const std::uint64_t seed = run_seed();
  write_cifar10(dir_, 50, 20, seed);
  const MemoryDataset train = load_cifar(dir_, CifarSplit::train), test = load_cifar(dir_, CifarSplit::test);
  const MemoryDataset drawn_train = draw_cifar(50, seed),
                      drawn_test = draw_cifar(20, seed, kFirstDrawnTestIndex);
  EXPECT_EQ(train.labels, drawn_train.labels);
  EXPECT_EQ(test.labels, drawn_test.labels);
  EXPECT_TRUE(train.bytes == drawn_train.bytes);
  EXPECT_TRUE(test.bytes == drawn_test.bytes);
  EXPECT_EQ(train.classes(), drawn_train.classes());
}

TEST_F(CifarWriter, ReplacesFilesOfAnInterruptedRun) {
  write(dir_ / "data_batch_2.bin.tandem-tmp", {1, 2, 3});
  write_cifar10(dir_, 5, 5, 2);
  EXPECT_EQ(names(), kSetNames);
  EXPECT_TRUE(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).bytes ==
              draw_cifar(5, 2).bytes);
}

TEST_F(CifarWriterRefuses, ForeignContentUnlessForced) {
  write(dir_ / "notes.txt", {'x'});
  expect_error([&] { write_cifar10(dir_, 5, 5); }, {dir_.string(), "notes.txt", "empty directory", "force"});
  EXPECT_EQ(names(), std::set<std::string>{"notes.txt"});
  write_cifar10(dir_, 5, 5, 0, true);
  EXPECT_EQ(names().size(), kSetNames.size() + 1);
  EXPECT_EQ(read(dir_ / "notes.txt"), Bytes{'x'});
}

TEST_F(CifarWriterRefuses, ToReplaceImagesThatWereNotDrawn) {
  write(dir_ / "data_batch_3.bin", {1, 2, 3});
  expect_error([&] { write_cifar10(dir_, 5, 5, 0, true); }, {dir_.string(), "data_batch_3.bin", "stays"});
  write(dir_ / "batches.meta.txt", {'c', 'a', 't', '\n'});
  expect_error([&] { write_cifar10(dir_, 5, 5, 0, true); }, {dir_.string(), "batches.meta.txt", "stays"});
  EXPECT_EQ(names(), (std::set<std::string>{"batches.meta.txt", "data_batch_3.bin"}));
  EXPECT_EQ(read(dir_ / "data_batch_3.bin"), (Bytes{1, 2, 3}));
}

// Such as CIFAR-10's own, which are as long as drawn ones.
TEST_F(CifarWriterRefuses, ToReplaceImagesThatCameBesideDrawnOnes) {
  write_cifar10(dir_, 10, 5, 1);
  Bytes images = read(dir_ / "data_batch_3.bin");
  images[1000] ^= 1;
  write(dir_ / "data_batch_3.bin", images);
  expect_error([&] { write_cifar10(dir_, 10, 5, 2, true); }, {"data_batch_3.bin", "drawn.xxh3", "stays"});
  EXPECT_TRUE(read(dir_ / "data_batch_3.bin") == images);
  fs::remove(dir_ / "data_batch_3.bin");
  write(dir_ / "drawn.xxh3", {'x', '\n'});
  expect_error([&] { write_cifar10(dir_, 10, 5, 2, true); }, {"drawn.xxh3", "stays"});
}

TEST_F(CifarWriterRefuses, ToGoOnAfterAnInterruptionAndLeavesNothing) {
  int images = 0;
  expect_error(
      [&] {
        write_cifar10(dir_, 10, 5, 0, false, [&] {
          if (++images == 8) throw Error("interrupted");
        });
      },
      {"interrupted"});
  EXPECT_TRUE(names().empty());
}

TEST_F(CifarWriterRefuses, MoreThanTheDiskHolds) {
  expect_error([&] { write_cifar10(dir_, 5'000'000'000'000, 5); },
               {dir_.string(), "5000000000005 images need 1.537e+07 GB", "are free"});
  EXPECT_TRUE(names().empty());
}

TEST_F(CifarWriterRefuses, ToReplaceASetUnlessForced) {
  write_cifar10(dir_, 5, 5, 1);
  expect_error([&] { write_cifar10(dir_, 10, 5, 2); }, {dir_.string(), ".bin", "empty directory", "force"});
  EXPECT_TRUE(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).bytes ==
              draw_cifar(5, 1).bytes);
  write_cifar10(dir_, 10, 5, 2, true);
  EXPECT_EQ(names(), kSetNames);
  EXPECT_TRUE(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).bytes ==
              draw_cifar(10, 2).bytes);
}

TEST_F(CifarWriterRefuses, AListOfOthers) {
  for (const std::string text : {"# mine\nlr = 1\n", "0123456789abcdef  my.bin\n", "mine"}) {
    std::ofstream(dir_ / "drawn.xxh3") << text;
    expect_error([&] { write_cifar10(dir_, 5, 5, 1, true); }, {"drawn.xxh3", "stays"});
    EXPECT_EQ(names(), std::set<std::string>{"drawn.xxh3"});
  }
}

TEST_F(CifarWriterRefuses, ASecondWriterOfADirectory) {
  bool tried = false;
  write_cifar10(dir_, 10, 5, 1, false, [&] {
    if (!std::exchange(tried, true))
      expect_error([&] { write_cifar10(dir_, 5, 5, 2); },
                   {dir_.string(), "another process", "choose another"});
  });
  EXPECT_TRUE(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).bytes ==
              draw_cifar(10, 1).bytes);
}

TEST_F(CifarWriterRefuses, CountsThatDoNotFillFiveEqualFiles) {
  expect_error([&] { write_cifar10(dir_, 12, 5); }, {"12 training", "multiple of 5"});
  expect_error([&] { write_cifar10(dir_, 0, 5); }, {"0 training", "positive"});
  expect_error([&] { write_cifar10(dir_, 5, -1); }, {"-1 test", "positive"});
  EXPECT_TRUE(names().empty());
}

TEST_F(CifarWriterRefuses, AFileInPlaceOfTheDirectory) {
  write(dir_ / "file", {1});
  for (const fs::path& target : {dir_ / "file", dir_ / "file" / "inside"})
    expect_error([&] { write_cifar10(target, 5, 5); }, {target.string(), "directory", "choose another"});
}

TEST_F(CifarWriterRefuses, AFullDiskAndKeepsTheOldSet) {
  write_cifar10(dir_, 5, 5, 1);
  rlimit before{};
  ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{5000, before.rlim_max};  // two records are longer
  ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &small));
  expect_error([&] { write_cifar10(dir_, 10, 5, 2, true); },
               {"data_batch_1.bin", "cannot be written", "space"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(names(), kSetNames);
  EXPECT_TRUE(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).bytes ==
              draw_cifar(5, 1).bytes);
}

TEST_F(CifarWriterRefuses, AFileThatCannotBeCreated) {
  fs::create_directories(dir_ / "test_batch.bin.tandem-tmp");
  expect_error([&] { write_cifar10(dir_, 5, 5); }, {"test_batch.bin", "cannot be created", "permissions"});
  EXPECT_EQ(names(), std::set<std::string>{"test_batch.bin.tandem-tmp"});
}

}  // namespace
}  // namespace tandem::testing
