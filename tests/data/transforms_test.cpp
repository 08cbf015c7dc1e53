// Random transforms against plain loops, and the frequencies of their choices.
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/datasets/mapped_dataset.h>
#include <tandem/datasets/memory_dataset.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/datasets/transforms/cutout.h>
#include <tandem/datasets/transforms/normalize.h>
#include <tandem/datasets/transforms/random_crop.h>
#include <tandem/datasets/transforms/random_flip.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
namespace {

/// An image whose pixels are all different and not 0, so that each can be followed.
struct Image {
  TensorType type;
  std::vector<std::uint8_t> values;
  std::int64_t height() const { return type.shape[0]; }
  std::int64_t width() const { return type.shape[1]; }
  std::int64_t channels() const { return type.shape[2]; }
  int at(std::int64_t y, std::int64_t x, std::int64_t c) const {  // 0 outside
    if (y < 0 || y >= height() || x < 0 || x >= width()) return 0;
    return values[static_cast<std::size_t>((y * width() + x) * channels() + c)];
  }
};

Image image(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Image result{{DType::u8, {height, width, channels}}, {}};
  for (std::int64_t i = 0; i < height * width * channels; ++i)
    result.values.push_back(static_cast<std::uint8_t>(1 + i % 255));
  return result;
}

template <class T = std::uint8_t>
std::vector<T> applied(const Transform& transform, const Image& image, std::int64_t epoch,
                       std::int64_t index) {
  Sample sample;
  const auto* const bytes = reinterpret_cast<const std::byte*>(image.values.data());
  sample.data.assign(bytes, bytes + image.values.size());
  transform.apply(epoch, index, image.type, sample);
  EXPECT_EQ(std::ssize(sample.data), transform.type(image.type).bytes());
  std::vector<T> result(sample.data.size() / sizeof(T));
  std::memcpy(result.data(), sample.data.data(), sample.data.size());
  return result;
}

/// The image moved by (down, right); the rest is 0.
std::vector<std::uint8_t> moved(const Image& from, std::int64_t down, std::int64_t right) {
  std::vector<std::uint8_t> to;
  for (std::int64_t y = 0; y < from.height(); ++y)
    for (std::int64_t x = 0; x < from.width(); ++x)
      for (std::int64_t c = 0; c < from.channels(); ++c)
        to.push_back(static_cast<std::uint8_t>(from.at(y - down, x - right, c)));
  return to;
}

TEST(RandomCrop, DrawsEveryShiftUpToThePaddingEquallyOften) {
  constexpr int kPadding = 2, kDraws = 5000, kPlaces = 2 * kPadding + 1;
  const Image from = image(5, 7, 3);
  std::map<std::vector<std::uint8_t>, int> seen;
  const RandomCrop crop(run_seed(), kPadding);
  for (int i = 0; i < kDraws; ++i) ++seen[applied(crop, from, i % 3, i)];
  EXPECT_EQ(seen.size(), std::size_t{kPlaces * kPlaces});
  for (int down = -kPadding; down <= kPadding; ++down)
    for (int right = -kPadding; right <= kPadding; ++right) {
      constexpr double kMean = double{kDraws} / (kPlaces * kPlaces);
      EXPECT_NEAR(seen[moved(from, down, right)], kMean, 6 * std::sqrt(kMean)) << down << ' ' << right;
    }
}

TEST(RandomCrop, AcceptsPaddingLargerThanTheImage) {
  const Image from = image(2, 3, 1);
  const RandomCrop crop(run_seed(), 5);
  std::map<std::vector<std::uint8_t>, int> seen, possible;
  for (int i = 0; i < 3000; ++i) ++seen[applied(crop, from, 0, i)];
  for (int down = -5; down <= 5; ++down)
    for (int right = -5; right <= 5; ++right) ++possible[moved(from, down, right)];
  EXPECT_EQ(seen.size(), possible.size());
  for (const auto& [result, count] : seen) EXPECT_TRUE(possible.contains(result));
}

TEST(RandomFlip, MirrorsWithItsProbability) {
  constexpr int kDraws = 4000;
  for (const std::int64_t channels : {1, 3})
    for (const std::int64_t width : {2, 4, 5}) {
      const Image from = image(3, width, channels);
      std::vector<std::uint8_t> mirrored;
      for (std::int64_t y = 0; y < 3; ++y)
        for (std::int64_t x = 0; x < width; ++x)
          for (std::int64_t c = 0; c < channels; ++c)
            mirrored.push_back(static_cast<std::uint8_t>(from.at(y, width - 1 - x, c)));
      for (const double p : {0.0, 0.3, 1.0}) {
        const RandomFlip flip(run_seed(), p);
        int flips = 0;
        for (int i = 0; i < kDraws; ++i) {
          const auto result = applied(flip, from, 1, i);
          const bool flipped = result == mirrored;
          ASSERT_TRUE(flipped || result == from.values);
          flips += flipped;
        }
        EXPECT_NEAR(flips, p * kDraws, 6 * std::sqrt(kDraws * p * (1 - p))) << p;
      }
    }
}

TEST(Normalize, SubtractsTheMeanAndDividesByTheDeviation) {
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    const Image from = image(16, 16, channels);
    std::vector<double> mean, deviation;
    for (std::int64_t c = 0; c < channels; ++c)
      mean.push_back(0.4 + 0.03 * static_cast<double>(c)),
          deviation.push_back(0.2 + 0.01 * static_cast<double>(c));
    const auto single = applied<float>(Normalize(mean, deviation), from, 0, 0);
    const auto exact = applied<double>(Normalize(mean, deviation, DType::f64), from, 0, 0);
    for (std::size_t i = 0; i < from.values.size(); ++i) {
      const auto c = i % static_cast<std::size_t>(channels);
      const double want = (from.values[i] / 255.0 - mean[c]) / deviation[c];
      ASSERT_EQ(exact[i], want);
      ASSERT_EQ(single[i], static_cast<float>(want));
    }
  }
}

TEST(Cutout, ClearsASquareCenteredAnywhere) {
  constexpr std::int64_t kHeight = 6, kWidth = 5, kSize = 3;
  constexpr int kDraws = 6000;
  const Image from = image(kHeight, kWidth, 3);
  std::map<std::vector<std::uint8_t>, int> seen;
  const Cutout cutout(run_seed(), kSize);
  for (int i = 0; i < kDraws; ++i) ++seen[applied(cutout, from, 2, i)];
  EXPECT_EQ(seen.size(), std::size_t{kHeight * kWidth});
  for (std::int64_t cy = 0; cy < kHeight; ++cy)
    for (std::int64_t cx = 0; cx < kWidth; ++cx) {
      std::vector<std::uint8_t> want = from.values;
      for (std::int64_t y = cy - 1; y <= cy + 1; ++y)
        for (std::int64_t x = cx - 1; x <= cx + 1; ++x)
          for (std::int64_t c = 0; c < 3; ++c)
            if (from.at(y, x, c) != 0) want[static_cast<std::size_t>((y * kWidth + x) * 3 + c)] = 0;
      constexpr double kMean = double{kDraws} / (kHeight * kWidth);
      EXPECT_NEAR(seen[want], kMean, 6 * std::sqrt(kMean)) << cy << ' ' << cx;
    }
}

TEST(Transforms, DependOnlyOnSeedEpochAndIndex) {
  const Image from = image(32, 32, 3);
  const auto results = [&](const Transform& t, std::int64_t epoch) {
    std::vector<std::vector<std::uint8_t>> all;
    for (std::int64_t i = 0; i < 50; ++i) all.push_back(applied(t, from, epoch, i));
    return all;
  };
  const std::uint64_t seed = run_seed();
  const auto expect_function = [&](const Transform& a, const Transform& same, const Transform& other) {
    EXPECT_EQ(results(a, 3), results(same, 3));
    EXPECT_NE(results(a, 3), results(a, 4));
    EXPECT_NE(results(a, 3), results(other, 3));
  };
  expect_function(RandomCrop(seed), RandomCrop(seed), RandomCrop(seed + 1));
  expect_function(RandomFlip(seed), RandomFlip(seed), RandomFlip(seed + 1));
  expect_function(Cutout(seed), Cutout(seed), Cutout(seed + 1));
}

TEST(Mapped, TransformsDoNotDependOnTheShuffle) {
  constexpr std::int64_t kImages = 20;
  std::vector<std::uint8_t> bytes;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < kImages; ++i) {
    const Image one = image(8, 8, 3);
    bytes.insert(bytes.end(), one.values.begin(), one.values.end());
    labels.push_back(static_cast<std::int32_t>(i));
  }
  const DatasetPtr data = std::make_shared<MemoryDataset>(image(8, 8, 3).type, bytes, labels, kImages);
  const double half[] = {0.5, 0.5, 0.5};
  const DatasetPtr augmented =
      mapped(data, {std::make_shared<RandomCrop>(5, 2), std::make_shared<RandomFlip>(5),
                    std::make_shared<Normalize>(half, half), std::make_shared<Cutout>(5, 3)});
  EXPECT_EQ(augmented->type(), (TensorType{DType::f32, {8, 8, 3}}));
  EXPECT_EQ(augmented->classes(), kImages);
  const ShuffledDataset shuffled(augmented, 9);
  Sample a, b;
  for (std::int64_t i = 0; i < kImages; ++i) {
    shuffled.get(2, i, a);
    augmented->get(2, a.labels[0], b);
    EXPECT_EQ(a.data, b.data);
  }
}

TEST(Transforms, RefuseInvalidArguments) {
  const double three[] = {1, 1, 1}, two[] = {1, 1};
  const TensorType floats{DType::f32, {4, 4, 3}}, flat{DType::u8, {48}}, four{DType::u8, {4, 4, 4}};
  expect_error([&] { RandomCrop(0).type(floats); }, {"RandomCrop", "u8", "f32[4, 4, 3]"});
  expect_error([&] { RandomFlip(0).type(flat); }, {"RandomFlip", "u8[48]"});
  expect_error([&] { RandomFlip(0).type(four); }, {"RandomFlip", "1 or 3 channels"});
  expect_error([&] { Normalize(three, three).type(four); }, {"3 means", "u8[4, 4, 4]"});
  expect_error([&] { Cutout(0).type(flat); }, {"Cutout", "(H,W,C)"});
  expect_error([&] { Normalize(three, two); }, {"3 means", "2 standard deviations"});
  expect_error([&] { Normalize(three, three, DType::i32); }, {"i32"});
  expect_error([] { RandomCrop(0, -1); }, {"-1"});
  expect_error([] { Cutout(0, -1); }, {"-1"});
  for (const double p : {-0.1, 1.1, std::nan("")}) expect_error([&] { RandomFlip(0, p); }, {"probability"});
}

}  // namespace
}  // namespace tandem::testing
