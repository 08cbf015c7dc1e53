#pragma once
#include <cstdint>
#include <set>

#include <tandem/datasets/dataset.h>

namespace tandem::testing {

/// Samples that identify themselves: f32 (2) of index and epoch, and the index as the label. The samples in
/// `bad` cannot be read.
class NumberedDataset final : public Dataset {
 public:
  explicit NumberedDataset(std::int64_t size, std::set<std::int64_t> bad = {});
  std::int64_t size() const override { return size_; }
  TensorType type() const override { return {DType::f32, {2}}; }
  int classes() const override { return static_cast<int>(size_); }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;

 private:
  const std::int64_t size_;
  const std::set<std::int64_t> bad_;
};

/// Sample `index` of `epoch`, alone.
Sample sample_of(const Dataset& dataset, std::int64_t epoch, std::int64_t index);

}  // namespace tandem::testing
