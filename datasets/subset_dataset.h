#pragma once
#include <cstdint>

#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// Every `step`-th sample of another dataset, from `first` on, `count` of them.
class SubsetDataset final : public DatasetAdapter {
 public:
  /// Throws Error where the source has not all of them.
  SubsetDataset(DatasetPtr source, std::int64_t first, std::int64_t count, std::int64_t step = 1);
  std::int64_t size() const override { return count_; }

 private:
  std::int64_t source_index(std::int64_t epoch, std::int64_t index) const override;
  const std::int64_t first_, count_, step_;
};

/// Shard `number` of `shards`: samples number, number + shards, … . Shards differ in size by one at most.
/// Throws Error on a number outside 0 … shards-1.
DatasetPtr shard(DatasetPtr source, std::int64_t number, std::int64_t shards);

}  // namespace tandem
