// Datasets made from datasets: shuffled, subsets, skipping, mixed, in memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/datasets/loader.h>
#include <tandem/datasets/mapped_dataset.h>
#include <tandem/datasets/memory_dataset.h>
#include <tandem/datasets/mixup_dataset.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/datasets/skipping_dataset.h>
#include <tandem/datasets/subset_dataset.h>

#include "expect_error.h"
#include "numbered_dataset.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

using Labels = std::vector<std::int32_t>;

DatasetPtr numbers(std::int64_t size, std::set<std::int64_t> bad = {}) {
  return std::make_shared<NumberedDataset>(size, std::move(bad));
}

/// The labels of all samples. `get` and `get_labels` must agree on them.
Labels labels(const Dataset& data, std::int64_t epoch = 0) {
  Labels result;
  Sample sample;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.get(epoch, i, sample);
    const Labels whole = sample.labels;
    data.get_labels(epoch, i, sample);
    EXPECT_EQ(sample.labels, whole);
    result.insert(result.end(), whole.begin(), whole.end());
  }
  return result;
}

float value(const Sample& sample) {
  float v = 0;
  std::memcpy(&v, sample.data.data(), sizeof v);
  return v;
}

TEST(Adapters, RefuseMissingDatasetsAndTransforms) {
  const std::vector<std::function<void()>> actions{[] { ShuffledDataset(nullptr, 1); },
                                                   [] { SubsetDataset(nullptr, 0, 1); },
                                                   [] { MixupDataset(nullptr, 4, 0.5, 1); },
                                                   [] { shard(nullptr, 0, 2); },
                                                   [] { mapped(nullptr, {nullptr}); },
                                                   [] { mapped(numbers(4), {nullptr}); },
                                                   [] { Loader(nullptr, {}); }};
  for (const auto& action : actions) EXPECT_THROW(action(), Error);
}

TEST(Shuffled, IsANewPermutationPerEpochThatDependsOnlyOnTheSeed) {
  const std::uint64_t seed = run_seed();
  const ShuffledDataset data(numbers(97), seed), again(numbers(97), seed), other(numbers(97), seed + 1);
  const Labels first = labels(data, 0), second = labels(data, 1);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 97u);
  EXPECT_NE(first, second);
  EXPECT_NE(first, labels(other, 0));
  EXPECT_EQ(labels(again, 5), labels(data, 5));
  EXPECT_EQ(labels(data, 0), first);  // though the order is no longer cached
  EXPECT_EQ(value(sample_of(data, 3, 8)), static_cast<float>(sample_of(data, 3, 8).labels[0]));
}

// Earlier versions trained on this order, and the losses in the documentation depend on it.
TEST(Shuffled, KeepsItsOrderFromVersionToVersion) {
  EXPECT_EQ(shuffled_order(8, 1, 2), (std::vector<std::int64_t>{6, 0, 2, 3, 1, 4, 7, 5}));
}

TEST(Shuffled, PutsEverySampleAtEveryPlaceEquallyOften) {
  constexpr int kSize = 5, kEpochs = 5000;
  int seen[kSize][kSize] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = shuffled_order(kSize, run_seed(), epoch);
    for (int i = 0; i < kSize; ++i) ++seen[i][order[static_cast<std::size_t>(i)]];
  }
  for (const auto& row : seen)
    for (const int count : row) EXPECT_NEAR(count, kEpochs / kSize, 6 * std::sqrt(kEpochs / kSize));
}

TEST(Shuffled, MayBeReadInSeveralEpochsAtOnce) {
  const ShuffledDataset data(numbers(50), 3);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 200; ++i) {
        const std::int64_t epoch = t + i % 3;
        const auto want = shuffled_order(50, 3, epoch)[static_cast<std::size_t>(i % 50)];
        EXPECT_EQ(sample_of(data, epoch, i % 50).labels[0], want);
      }
    });
}

TEST(Subset, TakesEveryNthSampleOfARange) {
  EXPECT_EQ(labels(SubsetDataset(numbers(10), 2, 3)), (Labels{2, 3, 4}));
  EXPECT_EQ(labels(SubsetDataset(numbers(10), 1, 3, 4)), (Labels{1, 5, 9}));
  EXPECT_EQ(SubsetDataset(numbers(10), 10, 0).size(), 0);
  EXPECT_EQ(SubsetDataset(numbers(10), 2, 3).classes(), 10);
  expect_error([] { SubsetDataset(numbers(10), 8, 3); }, {"3 samples", "from 8", "10 samples"});
  expect_error([] { SubsetDataset(numbers(10), 1, 4, 4); }, {"every 4th"});
  expect_error([] { SubsetDataset(numbers(10), 0, 2, INT64_MAX); }, {"2 samples"});
  expect_error([] { sample_of(SubsetDataset(numbers(10), 2, 3), 0, 3); },
               {"sample 3", "out of range", "3 samples"});
}

TEST(Shards, CoverTheDatasetOnceAndDifferInSizeByAtMostOne) {
  for (const std::int64_t size : {0, 1, 2, 10, 11})
    for (const std::int64_t shards : {1, 2, 3, 7}) {
      std::multiset<std::int32_t> seen;
      for (std::int64_t s = 0; s < shards; ++s) {
        const Labels part = labels(*shard(numbers(size), s, shards));
        EXPECT_LE(std::abs(std::ssize(part) - size / shards), 1);
        seen.insert(part.begin(), part.end());
      }
      EXPECT_EQ(std::ssize(seen), size);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
    }
  expect_error([] { shard(numbers(4), 2, 2); }, {"shard 2 of 2"});
}

TEST(Memory, HoldsTheSamplesOfAnotherDataset) {
  const MemoryDataset copy(*numbers(7));
  EXPECT_EQ(labels(copy), labels(*numbers(7)));
  EXPECT_EQ(sample_of(copy, 0, 6).data, sample_of(*numbers(7), 0, 6).data);
  EXPECT_EQ(copy.type(), numbers(7)->type());
  EXPECT_EQ(copy.classes(), 7);
  expect_error([&] { sample_of(copy, 0, 7); }, {"sample 7", "7 samples"});
  expect_error(
      [] {
        MemoryDataset({DType::u8, {3}}, {1, 2, 3, 4}, {0}, 1);
      },
      {"4 bytes", "1 label", "u8[3]"});
}

TEST(BadSamples, AreSkippedUpToTheLimitAndCountedOnceEach) {
  const auto bad = std::make_shared<BadSamples>(2);
  const SkippingDataset data(numbers(6, {1, 5}), bad);
  EXPECT_EQ(labels(data), (Labels{0, 2, 2, 3, 4, 0}));  // the next sample replaces each
  EXPECT_EQ(labels(data, 1), (Labels{0, 2, 2, 3, 4, 0}));
  EXPECT_EQ(bad->count(), 2);
  EXPECT_NE(bad->first().find("offset 8"), std::string::npos);

  const SkippingDataset more(numbers(6, {1, 2, 5}), std::make_shared<BadSamples>(2));
  sample_of(more, 0, 1);
  expect_error([&] { sample_of(more, 0, 5); }, {"numbers.bin", "offset 40", "number 3", "2 may be skipped"});
  const SkippingDataset none(numbers(2, {0, 1}), std::make_shared<BadSamples>(9));
  expect_error([&] { sample_of(none, 0, 0); }, {"no sample", "numbers.bin"});
}

TEST(BadSamples, StopLoadingIfNoneIsAllowed) {
  expect_error([] { MemoryDataset(*numbers(3, {1})); }, {"numbers.bin", "offset 8"});
  BadSamples none;
  expect_error([&] { MemoryDataset(*numbers(3, {1}), &none); }, {"numbers.bin", "offset 8"});
  BadSamples two(2);
  EXPECT_EQ(labels(MemoryDataset(*numbers(5, {1, 4}), &two)), (Labels{0, 2, 3}));
  EXPECT_EQ(two.count(), 2);
}

TEST(BadSamples, PoliciesAreStopAndSkip) {
  EXPECT_EQ(allowed_bad_samples("stop"), 0);
  EXPECT_EQ(allowed_bad_samples("skip:0"), 0);
  EXPECT_EQ(allowed_bad_samples("skip:12"), 12);
  for (const char* wrong : {"", "skip", "skip:", "skip:-1", "skip:1x", "skip:99999999999999999999", "Stop"})
    expect_error([&] { allowed_bad_samples(wrong); }, {std::string("'") + wrong + "'", "stop", "skip:N"});
}

// ---- mixup --------------------------------------------------------------------------------------------

TEST(Mixup, MixesASampleWithAnotherOfItsBatch) {
  constexpr std::int64_t kSize = 23, kBatch = 8;  // the last batch has 7
  const MixupDataset data(numbers(kSize), kBatch, 0.7, run_seed());
  EXPECT_EQ(data.labels_per_sample(), 2);
  labels(data, 1);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    for (std::int64_t first = 0; first < kSize; first += kBatch) {
      std::set<std::int32_t> others;
      for (std::int64_t i = first; i < std::min(first + kBatch, kSize); ++i) {
        const Sample s = sample_of(data, epoch, i);
        const auto [other, lambda] = data.pair(epoch, i);
        EXPECT_EQ(s.labels, (Labels{static_cast<std::int32_t>(i), static_cast<std::int32_t>(other)}));
        EXPECT_EQ(other / kBatch, i / kBatch);
        EXPECT_LT(other, kSize);
        EXPECT_EQ(lambda, data.pair(epoch, first).lambda);
        EXPECT_FLOAT_EQ(s.weights.at(0), static_cast<float>(lambda));
        EXPECT_FLOAT_EQ(s.weights.at(0) + s.weights.at(1), 1);
        EXPECT_NEAR(value(s), lambda * static_cast<double>(i) + (1 - lambda) * static_cast<double>(other),
                    1e-5);
        others.insert(s.labels[1]);
      }
      EXPECT_EQ(std::ssize(others), std::min(kBatch, kSize - first));  // a permutation
    }
  }
}

TEST(Mixup, DrawsItsWeightFromBeta) {
  constexpr int kDraws = 4000;
  for (const double alpha : {0.05, 0.2, 1.0, 3.0}) {
    const MixupDataset data(numbers(kDraws), 1, alpha, run_seed());
    double sum = 0, squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double lambda = data.pair(0, i).lambda;
      ASSERT_TRUE(lambda >= 0 && lambda <= 1) << lambda;
      sum += lambda, squares += (lambda - 0.5) * (lambda - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 6 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 6 * 0.5 * std::sqrt(variance / kDraws)) << alpha;
  }
}

TEST(Mixup, RefusesInvalidArguments) {
  expect_error([] { MixupDataset(numbers(4), 0, 1, 0); }, {"batch size 0"});
  for (const double alpha : {0.0, 4.5, std::nan("")})
    expect_error([&] { MixupDataset(numbers(4), 2, alpha, 0); }, {"alpha", "(0, 4]"});
  const auto pixels =
      std::make_shared<MemoryDataset>(TensorType{DType::u8, {1}}, std::vector<std::uint8_t>{1}, Labels{0}, 1);
  expect_error([&] { MixupDataset(pixels, 2, 1, 0); }, {"u8[1]", "normalize"});
  const auto mixed = std::make_shared<MixupDataset>(numbers(4), 2, 1, 0);
  expect_error([&] { MixupDataset(mixed, 2, 1, 0); }, {"2 labels"});
}

}  // namespace
}  // namespace tandem::testing
