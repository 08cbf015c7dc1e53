#pragma once
#include <cstdint>

#include <tandem/datasets/dataset.h>

#include "numbered_dataset.h"

namespace tandem::testing {

/// Samples f32 (4) of three classes. Seed and index determine the values; the class adds 1 to one element.
class ClassDataset : public Dataset {
 public:
  ClassDataset(std::int64_t size, std::uint64_t seed) : size_(size), seed_(seed) {}
  std::int64_t size() const override { return size_; }
  TensorType type() const override { return {DType::f32, {4}}; }
  int classes() const override { return 3; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;

 private:
  const std::int64_t size_;
  const std::uint64_t seed_;
};

/// The same with two labels per sample.
class MixedLabels final : public ClassDataset {
 public:
  using ClassDataset::ClassDataset;
  int labels_per_sample() const override { return 2; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;
};

}  // namespace tandem::testing
