#pragma once
#include <cstdint>

#include <tandem/datasets/dataset.h>
#include <tandem/datasets/memory_dataset.h>

namespace tandem {

/// Drawn images (draw.h), each drawn when it is read: numbers first_index … first_index+size-1 of the series
/// `seed`.
class DrawnDataset final : public Dataset {
 public:
  /// Throws Error on a negative argument.
  DrawnDataset(std::int64_t size, std::uint64_t seed, std::int64_t first_index = 0);
  std::int64_t size() const override { return size_; }
  TensorType type() const override;
  int classes() const override;
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;

 private:
  const std::int64_t size_;
  const std::uint64_t seed_;
  const std::int64_t first_index_;
};

/// Draws a whole DrawnDataset into memory.
MemoryDataset draw_cifar(std::int64_t count, std::uint64_t seed, std::int64_t first_index = 0);

}  // namespace tandem
