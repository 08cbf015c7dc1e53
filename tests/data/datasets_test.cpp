#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/rng.h>
#include <tandem/datasets/cifar.h>
#include <tandem/datasets/cifar_writer.h>
#include <tandem/datasets/draw.h>
#include <tandem/datasets/drawn_dataset.h>

#include "cifar_files.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

using CifarReader = CifarFiles;
using CifarReaderRefuses = CifarFiles;

// ---- reading ----------------------------------------------------------------------------------------

TEST_F(CifarReader, ConvertsTheThreePlanesOfARecordToChannelsLastPixels) {
  write(dir_ / "data_batch_1.bin", record({7}, 3) + record({2}, 100));
  const MemoryDataset data = load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10);
  EXPECT_EQ(data.classes(), 10);
  EXPECT_EQ(data.labels, (std::vector<std::int32_t>{7, 2}));
  ASSERT_EQ(std::ssize(data.bytes), 2 * kCifarImageBytes);
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t p = 0; p < kPlane; ++p)
      for (std::int64_t c = 0; c < 3; ++c)
        ASSERT_EQ(data.bytes[(n * kPlane + p) * 3 + c],
                  static_cast<std::uint8_t>((n ? 100 : 3) + c * kPlane + p));
}

TEST_F(CifarReader, TakesTheFineLabelOfCifar100) {
  write(dir_ / "train.bin", record({19, 99}) + record({4, 30}));
  write(dir_ / "test.bin", record({0, 1}));
  const MemoryDataset train = load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar100);
  EXPECT_EQ(train.classes(), 100);
  EXPECT_EQ(train.labels, (std::vector<std::int32_t>{99, 30}));
  EXPECT_EQ(train.bytes[kCifarImageBytes], 0);  // the second image begins after its two label bytes
  EXPECT_EQ(load_cifar(dir_, CifarSplit::test, nullptr, CifarKind::cifar100).labels,
            (std::vector<std::int32_t>{1}));
}

TEST_F(CifarReader, JoinsTheExistingTrainingFilesInOrder) {
  write(dir_ / "data_batch_3.bin", record({3}));
  write(dir_ / "data_batch_1.bin", record({1}) + record({0}));
  write(dir_ / "data_batch_2.bin", record({2}));
  EXPECT_EQ(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).labels,
            (std::vector<std::int32_t>{1, 0, 2, 3}));
}

TEST_F(CifarReader, FindsTheFoldersTheArchivesUnpackTo) {
  write(dir_ / "ten/cifar-10-batches-bin/test_batch.bin", record({5}));
  write(dir_ / "hundred/cifar-100-binary/test.bin", record({2, 55}));
  EXPECT_EQ(load_cifar(dir_ / "ten", CifarSplit::test).labels, (std::vector<std::int32_t>{5}));
  EXPECT_EQ(load_cifar(dir_ / "hundred", CifarSplit::test).labels, (std::vector<std::int32_t>{55}));
}

TEST_F(CifarReader, TellsCifar10FromCifar100ByItsFiles) {
  write(dir_ / "a/data_batch_1.bin", record({5}));
  write(dir_ / "b/train.bin", record({5, 55}));
  EXPECT_EQ(load_cifar(dir_ / "a", CifarSplit::train).classes(), 10);
  EXPECT_EQ(load_cifar(dir_ / "b", CifarSplit::train).classes(), 100);
}

TEST_F(CifarReaderRefuses, AMissingDirectory) {
  const fs::path missing = dir_ / "nowhere";
  for (const auto kind : {CifarKind::any, CifarKind::cifar10, CifarKind::cifar100})
    expect_error([&] { CifarDataset(missing, CifarSplit::train, kind); },
                 {missing.string(), "No such file or directory", "pass"});
}

TEST_F(CifarReaderRefuses, AFileInPlaceOfTheDirectory) {
  write(dir_ / "file", {1});
  expect_error([&] { load_cifar(dir_ / "file", CifarSplit::test); },
               {(dir_ / "file").string(), "Not a directory"});
}

TEST_F(CifarReaderRefuses, ADirectoryWithNeitherSetOrWithBoth) {
  expect_error([&] { load_cifar(dir_, CifarSplit::train); },
               {dir_.string(), "neither", "data_batch_1.bin", "train.bin"});
  write(dir_ / "cifar-10-batches-bin/data_batch_1.bin", record({5}));
  write(dir_ / "train.bin", record({5, 55}));
  expect_error([&] { load_cifar(dir_, CifarSplit::train); }, {dir_.string(), "both CIFAR-10 and CIFAR-100"});
}

TEST_F(CifarReaderRefuses, AGapAmongTheFiles) {
  for (int i : {1, 2, 4}) write(dir_ / ("data_batch_" + std::to_string(i) + ".bin"), record({5}));
  expect_train_error({(dir_ / "data_batch_3.bin").string(), "missing, though data_batch_4.bin is there"});
}

TEST_F(CifarReaderRefuses, ALinkThatLeadsNowhere) {
  write(dir_ / "data_batch_1.bin", record({5}));
  fs::create_symlink(dir_ / "nowhere", dir_ / "data_batch_2.bin");
  expect_train_error({(dir_ / "data_batch_2.bin").string(), "cannot be read", "No such file"});
}

TEST_F(CifarReaderRefuses, ASplitWhoseFirstFileIsMissing) {
  write(dir_ / "data_batch_2.bin", record({5}));
  expect_train_error({dir_.string(), "no data_batch_1.bin", "cifar-10-batches-bin", "unpack"});
  expect_error([&] { load_cifar(dir_, CifarSplit::test, nullptr, CifarKind::cifar10); },
               {"no test_batch.bin"});
  expect_error([&] { load_cifar(dir_, CifarSplit::test, nullptr, CifarKind::cifar100); },
               {"no test.bin", "cifar-100-binary"});
}

TEST_F(CifarReaderRefuses, AnEmptyFile) {
  write(dir_ / "data_batch_1.bin", {});
  expect_train_error({(dir_ / "data_batch_1.bin").string(), "empty"});
}

TEST_F(CifarReaderRefuses, AFileThatCannotBeRead) {
  fs::create_directories(dir_ / "data_batch_1.bin");
  expect_train_error({(dir_ / "data_batch_1.bin").string(), "no regular file", "put CIFAR-10's file here"});
}

TEST_F(CifarReaderRefuses, RecordsOfTheOtherCifarFormat) {
  write(dir_ / "data_batch_1.bin", record({5, 55}));
  expect_train_error({"data_batch_1.bin", "oversized", "3074 bytes", "1 bytes over", "offset 3073"});
}

TEST_F(CifarReaderRefuses, ALabelOutOfRangeAndNamesItsPosition) {
  write(dir_ / "data_batch_1.bin", record({9}));
  write(dir_ / "data_batch_2.bin", record({0}) + record({9}) + record({10}));
  expect_train_error({(dir_ / "data_batch_2.bin").string(), "record 2", "offset 6146", "label 10", "0 … 9"});

  write(dir_ / "train.bin", record({19, 99}) + record({19, 100}));
  expect_error([&] { load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar100); },
               {"train.bin", "record 1", "offset 3075", "fine label 100", "0 … 99"});
  write(dir_ / "train.bin", record({20, 99}));
  expect_error([&] { load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar100); },
               {"train.bin", "record 0", "offset 0", "coarse label 20", "0 … 19"});
}

TEST_F(CifarReaderRefuses, EveryTruncationInsideARecord) {
  std::mt19937_64 random = generator("truncated CIFAR-10");
  const Bytes whole = record({1}) + record({2}) + record({3});
  std::set<std::size_t> lengths{1, kRecord10 - 1, kRecord10, kRecord10 + 1, 2 * kRecord10, 3 * kRecord10 - 1};
  while (lengths.size() < 60) lengths.insert(1 + random() % (whole.size() - 1));
  for (const std::size_t length : lengths) {
    SCOPED_TRACE(length);
    write(dir_ / "data_batch_1.bin",
          Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    if (const std::size_t over = length % kRecord10; over == 0)
      EXPECT_EQ(load_cifar(dir_, CifarSplit::train, nullptr, CifarKind::cifar10).size(),
                static_cast<std::int64_t>(length / kRecord10));
    else
      expect_train_error({"data_batch_1.bin", "short or oversized", std::to_string(over) + " bytes over",
                          "offset " + std::to_string(length - over)});
  }
}

TEST_F(CifarReaderRefuses, RandomBytesOnlyIfALabelIsOutOfRange) {
  std::mt19937_64 random = generator("random CIFAR-100");
  int refused = 0, read_well = 0;
  for (int round = 0; round < 60; ++round) {
    Bytes bytes(kRecord100 * (1 + random() % 3));
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    bool valid = true;
    for (std::size_t at = 0; at < bytes.size(); at += kRecord100) {
      bytes[at] %= 22, bytes[at + 1] %= 110;  // sometimes out of range
      valid &= bytes[at] < 20 && bytes[at + 1] < 100;
    }
    write(dir_ / "test.bin", bytes);
    if (valid) {
      EXPECT_EQ(load_cifar(dir_, CifarSplit::test, nullptr, CifarKind::cifar100).labels.back(),
                bytes[bytes.size() - kRecord100 + 1]);
      ++read_well;
    } else {
      expect_error([&] { load_cifar(dir_, CifarSplit::test, nullptr, CifarKind::cifar100); },
                   {"test.bin", "out of range"});
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(read_well, 0);
}

TEST_F(CifarReader, SkipsAsManyBadRecordsAsAllowedAndCountsThem) {
  write(dir_ / "data_batch_1.bin", record({1}) + record({200}) + record({3}) + record({10}));
  for (const std::int64_t allowed : {2, 5}) {
    BadSamples bad(allowed);
    EXPECT_EQ(load_cifar(dir_, CifarSplit::train, &bad).labels, (std::vector<std::int32_t>{1, 3}));
    EXPECT_EQ(bad.count(), 2);
    EXPECT_NE(bad.first().find("offset 3073: label 200"), std::string::npos) << bad.first();
  }
  BadSamples one(1);
  expect_error([&] { load_cifar(dir_, CifarSplit::train, &one); },
               {"data_batch_1.bin", "record 3", "offset 9219", "number 2", "1 may be skipped"});
}

TEST_F(CifarReader, NamesTheEndOfAFileThatShrinksWhileItIsRead) {
  write(dir_ / "data_batch_1.bin", record({1}) + record({2}) + record({3}));
  const CifarDataset data(dir_, CifarSplit::train);
  fs::resize_file(dir_ / "data_batch_1.bin", 2 * kRecord10 + 100);
  Sample sample;
  data.get(0, 1, sample);
  EXPECT_EQ(sample.labels, std::vector<std::int32_t>{2});
  expect_error([&] { data.get(0, 2, sample); },
               {(dir_ / "data_batch_1.bin").string(), "record 2", "offset 6246", "ends"});
}

TEST_F(CifarReader, ReadsTheSameRecordsOneByOneAndAllAtOnce) {
  write_cifar10(dir_, 50, 20, run_seed());
  const CifarDataset files(dir_, CifarSplit::train);
  const MemoryDataset whole = load_cifar(dir_, CifarSplit::train);
  ASSERT_EQ(files.size(), 50);
  EXPECT_EQ(files.type(), whole.type());
  Sample a, b;
  for (const std::int64_t i : {49, 0, 10, 9, 31}) {
    files.get(0, i, a), whole.get(0, i, b);
    EXPECT_TRUE(a.data == b.data && a.labels == b.labels) << i;
  }
  for (const std::int64_t i : {-1, 50})
    expect_error([&] { files.get(0, i, a); }, {std::to_string(i), "50 samples"});
}

// ---- drawing ----------------------------------------------------------------------------------------

TEST(DrawnImages, DependOnlyOnSeedAndIndex) {
  const std::uint64_t seed = run_seed();
  const MemoryDataset whole = draw_cifar(50, seed), part = draw_cifar(13, seed, 29),
                      other = draw_cifar(50, seed + 1);
  for (std::int64_t i = 0; i < 13; ++i) EXPECT_EQ(part.labels[i], whole.labels[29 + i]);
  EXPECT_TRUE(std::equal(part.bytes.begin(), part.bytes.end(), whole.bytes.begin() + 29 * kCifarImageBytes));
  EXPECT_NE(other.bytes, whole.bytes);
  EXPECT_NE(other.labels, whole.labels);
}

// Accuracies in the documentation depend on these images.
TEST(DrawnImages, StayTheSameFromVersionToVersion) {
  const MemoryDataset data = draw_cifar(100, 1, 7);
  EXPECT_EQ(fnv1a({reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size()}),
            11347393299433143881u);
  EXPECT_EQ(std::vector(data.labels.begin(), data.labels.begin() + 5),
            (std::vector<std::int32_t>{8, 2, 1, 0, 6}));
}

TEST(DrawnImages, HoldEveryClassOnceInTenImagesInVaryingOrder) {
  const MemoryDataset data = draw_cifar(300, run_seed());
  std::set<std::vector<std::int32_t>> orders;
  for (auto ten = data.labels.begin(); ten != data.labels.end(); ten += 10) {
    orders.insert({ten, ten + 10});
    EXPECT_EQ(std::set<std::int32_t>(ten, ten + 10).size(), 10u);
  }
  EXPECT_GT(orders.size(), 25u);
  EXPECT_GE(*std::ranges::min_element(data.labels), 0);
  EXPECT_LT(*std::ranges::max_element(data.labels), kDrawnClasses);
}

TEST(DrawnImages, RefuseNegativeCountsAndIndices) {
  expect_error([] { draw_cifar(-1, 0); }, {"-1 images", "negative"});
  expect_error([] { draw_cifar(1, 0, -5); }, {"index -5", "negative"});
}

/// The test accuracy of softmax regression on normalized pixels, trained by plain SGD, one image at a time.
double linear_accuracy(const MemoryDataset& train, const MemoryDataset& test, int epochs) {
  constexpr std::int64_t kClasses = kDrawnClasses;
  constexpr float kRate = 1e-4f;
  std::vector<float> weight(kCifarImageBytes * kClasses), image(kCifarImageBytes);  // (3072,10), (3072)
  std::array<float, kClasses> bias{}, logits;
  const auto forward = [&](const MemoryDataset& data, std::int64_t n) {
    for (std::int64_t i = 0; i < kCifarImageBytes; ++i)
      image[i] = static_cast<float>((data.bytes[n * kCifarImageBytes + i] / 255.0 - 0.5) / 0.25);
    logits = bias;
    for (std::int64_t i = 0; i < kCifarImageBytes; ++i)
      for (std::int64_t c = 0; c < kClasses; ++c) logits[c] += image[i] * weight[i * kClasses + c];
  };
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (std::int64_t n = 0; n < train.size(); ++n) {
      forward(train, n);
      const float largest = *std::ranges::max_element(logits);
      float sum = 0;
      for (float& logit : logits) sum += logit = std::exp(logit - largest);
      std::array<float, kClasses> step;  // -rate · (softmax - one-hot)
      for (std::int64_t c = 0; c < kClasses; ++c)
        step[c] = kRate * ((c == train.labels[n]) - logits[c] / sum);
      for (std::int64_t c = 0; c < kClasses; ++c) bias[c] += step[c];
      for (std::int64_t i = 0; i < kCifarImageBytes; ++i)
        for (std::int64_t c = 0; c < kClasses; ++c) weight[i * kClasses + c] += image[i] * step[c];
    }
  std::int64_t right = 0;
  for (std::int64_t n = 0; n < test.size(); ++n) {
    forward(test, n);
    right += std::ranges::max_element(logits) - logits.begin() == test.labels[n];
  }
  return static_cast<double>(right) / static_cast<double>(test.size());
}

// If a linear model could learn it, no convolution would be needed. It must stay below 60 %; it stays near
// chance.
TEST(DrawnImages, CannotBeClassifiedByALinearModel) {
  const std::uint64_t seed = run_seed();
  MemoryDataset train = draw_cifar(3000, seed), test = draw_cifar(1000, seed, kFirstDrawnTestIndex);
  const double accuracy = linear_accuracy(train, test, 3);
  RecordProperty("linear_accuracy", std::to_string(accuracy));
  std::cout << "linear accuracy " << accuracy << '\n';
  EXPECT_LT(accuracy, 0.3);

  // The same model learns a linear task: a bar whose column is the class.
  for (MemoryDataset* data : {&train, &test})
    for (std::int64_t n = 0; n < data->size(); ++n)
      for (std::int64_t row = 0; row < kCifarSide; ++row)
        for (std::int64_t i = 0; i < 9; ++i)
          data->bytes[n * kCifarImageBytes + row * kCifarSide * 3 + data->labels[n] * 9 + i] = 255;
  EXPECT_GT(linear_accuracy(train, test, 3), 0.9);
}

}  // namespace
}  // namespace tandem::testing
