#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tandem {

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarChannels = 3;
/// Bytes of one image, in memory (H,W,C) as well as in a file (C,H,W).
inline constexpr std::int64_t kCifarImageBytes = kCifarSide * kCifarSide * kCifarChannels;

/// What `normalise` takes from, and divides, a channel's value in [0, 1].
inline constexpr std::array<double, 3> kCifarMean{0.5, 0.5, 0.5};
inline constexpr std::array<double, 3> kCifarStd{0.25, 0.25, 0.25};

/// A set of labelled 32x32 colour images, held in memory.
struct CifarData {
  std::vector<std::uint8_t> pixels;  ///< (N,32,32,3), channels-last
  std::vector<std::int32_t> labels;  ///< (N), 0 … classes-1
  int classes = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
  /// Of the labels and some bytes of every image: other data have, almost certainly, another one.
  std::uint64_t digest() const;
};

enum class CifarSplit { train, test };

/// Reads the binary version of CIFAR-10 from `dir`, or from its subfolder cifar-10-batches-bin:
/// data_batch_1.bin … data_batch_5.bin (the first at least, and none missing in between) or test_batch.bin,
/// each a whole number of 3073-byte records: label, then the red, green and blue planes (32,32).
/// Throws Error naming file, record, offset, what was found there and the fix.
/// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and its data page.
CifarData load_cifar10(const std::filesystem::path& dir, CifarSplit split);

/// The same for CIFAR-100: train.bin or test.bin in `dir` or its subfolder cifar-100-binary, 3074-byte
/// records: coarse label (20 classes; checked and dropped), fine label (100 classes), planes.
CifarData load_cifar100(const std::filesystem::path& dir, CifarSplit split);

/// Reads whichever of the two `dir` holds; an Error if it holds neither or both.
CifarData load_cifar(const std::filesystem::path& dir, CifarSplit split);

/// Fills a batch: out[i,h,w,c] = (pixel[indices[i],h,w,c] / 255 - kCifarMean[c]) / kCifarStd[c],
/// out being (n,32,32,3). Throws Error on an index out of range or an `out` of another size.
void normalise(const CifarData& data, std::span<const std::int64_t> indices, std::span<float> out);
void normalise(const CifarData& data, std::span<const std::int64_t> indices, std::span<double> out);

}  // namespace tandem
