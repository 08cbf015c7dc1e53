#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <tandem/datasets/dataset.h>
#include <tandem/datasets/memory_dataset.h>
#include <tandem/datasets/record_file.h>

namespace tandem {

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarChannels = 3;
/// Bytes of one image, in memory (H,W,C) as well as in a file (C,H,W).
inline constexpr std::int64_t kCifarImageBytes = kCifarSide * kCifarSide * kCifarChannels;

/// Training subtracts the mean from a channel's value in [0, 1], and divides by the standard deviation.
inline constexpr std::array<double, 3> kCifarMean{0.5, 0.5, 0.5};
inline constexpr std::array<double, 3> kCifarStd{0.25, 0.25, 0.25};

/// Returns u8 (32,32,3), channels last.
TensorType cifar_image_type();

enum class CifarSplit { train, test };
enum class CifarKind { any, cifar10, cifar100 };

/// Labeled 32x32 color images in the files of CIFAR's binary version, which stay open.
/// CIFAR-10: from `dir` or its subfolder cifar-10-batches-bin: data_batch_1.bin … data_batch_5.bin (at least
/// the first, and none missing in between) or test_batch.bin, each a whole number of 3073-byte records:
/// label, then the red, green and blue planes (32,32). CIFAR-100: train.bin or test.bin in `dir` or its
/// subfolder cifar-100-binary, 3074-byte records: coarse label (20 classes; checked and dropped), fine label
/// (100 classes), planes.
/// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and its data page.
class CifarDataset final : public Dataset {
 public:
  /// `any` reads the kind that `dir` holds, and throws Error if it holds neither or both. Errors name the
  /// file, what was found there, and the fix.
  CifarDataset(const std::filesystem::path& dir, CifarSplit split, CifarKind kind = CifarKind::any);
  std::int64_t size() const override { return size_; }
  TensorType type() const override { return cifar_image_type(); }
  int classes() const override;
  /// Throws BadSample naming file, record and offset if a label is out of range or the disk cannot be read.
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;

  struct Format;  ///< the layout of one kind on disk

 private:
  const Format& format_;
  std::vector<RecordFile> files_;
  std::int64_t size_ = 0;
};

/// Reads a whole CifarDataset into memory. Leaves out as many unreadable samples as `bad` allows; without
/// `bad`, none. One more throws BadSample.
MemoryDataset load_cifar(const std::filesystem::path& dir, CifarSplit split, BadSamples* bad = nullptr,
                         CifarKind kind = CifarKind::any);

}  // namespace tandem
