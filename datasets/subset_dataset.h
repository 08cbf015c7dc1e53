#pragma once
#include <cstdint>

#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// A view of `count` samples of another dataset: every `step`-th from `first` on.
class SubsetDataset final : public DatasetAdapter {
 public:
  /// Throws Error if the source does not have all of them.
  SubsetDataset(DatasetPtr source, std::int64_t first, std::int64_t count, std::int64_t step = 1);
  std::int64_t size() const override { return count_; }

 private:
  std::int64_t source_index(std::int64_t epoch, std::int64_t index) const override;
  const std::int64_t first_, count_, step_;
};

/// Returns shard `number` of `shards`: samples number, number + shards, … . The sizes of shards differ by at
/// most one. Throws Error if `number` is outside 0 … shards-1.
DatasetPtr shard(DatasetPtr source, std::int64_t number, std::int64_t shards);

}  // namespace tandem
