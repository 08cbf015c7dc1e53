#pragma once
#include <cstdint>
#include <initializer_list>

#include <tandem/datasets/dataset_adapter.h>
#include <tandem/datasets/transform.h>

namespace tandem {

/// A view of another dataset with transformed data and the same labels.
class MappedDataset final : public DatasetAdapter {
 public:
  /// Throws Error if the transform does not take the source's type.
  MappedDataset(DatasetPtr source, TransformPtr transform);
  TensorType type() const override { return out_; }
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override;

 private:
  const TransformPtr transform_;
  const TensorType in_, out_;
};

/// Returns `source` with all transforms, the first of them applied first.
DatasetPtr mapped(DatasetPtr source, std::initializer_list<TransformPtr> transforms);

}  // namespace tandem
