#pragma once
#include <cstdint>
#include <vector>

#include <tandem/datasets/bad_samples.h>
#include <tandem/datasets/dataset.h>

namespace tandem {

/// Samples held in memory, one after the other, each with one label.
class MemoryDataset final : public Dataset {
 public:
  MemoryDataset() = default;
  /// Throws Error unless `bytes` holds `labels.size()` samples of `type`.
  MemoryDataset(TensorType type, std::vector<std::uint8_t> bytes, std::vector<std::int32_t> labels,
                int classes);
  /// Copies another dataset as it is in epoch 0. Leaves out as many unreadable samples as `bad` allows; none
  /// if it is null.
  explicit MemoryDataset(const Dataset& source, BadSamples* bad = nullptr);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels.size()); }
  TensorType type() const override { return sample_type; }
  int classes() const override { return class_count; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;
  void get_labels(std::int64_t epoch, std::int64_t index, Sample& sample) const override;
  /// Returns a checksum of all samples and labels; other data almost certainly have another one.
  std::string digest() const;

  TensorType sample_type;
  std::vector<std::uint8_t> bytes;   ///< (N, …)
  std::vector<std::int32_t> labels;  ///< (N)
  int class_count = 0;
};

}  // namespace tandem
