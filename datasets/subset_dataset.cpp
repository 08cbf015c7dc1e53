#include <tandem/datasets/subset_dataset.h>

#include <algorithm>

#include <fmt/format.h>

namespace tandem {

SubsetDataset::SubsetDataset(DatasetPtr source, std::int64_t first, std::int64_t count, std::int64_t step)
    : DatasetAdapter(std::move(source)), first_(first), count_(count), step_(step) {
  const std::int64_t size = this->source().size();
  if (first < 0 || count < 0 || step < 1 ||
      (count > 0 && (first >= size || count - 1 > (size - 1 - first) / step)))
    throw Error(fmt::format("a subset of {} from {} on, every {}th: the dataset has only {}, from 0",
                            counted(count, "sample"), first, step, counted(size, "sample")));
}

std::int64_t SubsetDataset::source_index(std::int64_t, std::int64_t index) const {
  require_index(*this, index);
  return first_ + index * step_;
}

DatasetPtr shard(DatasetPtr source, std::int64_t number, std::int64_t shards) {
  if (number < 0 || number >= shards)
    throw Error(fmt::format("shard {} of {}: shards are numbered from 0", number, shards));
  const std::int64_t count = (required(source)->size() - number + shards - 1) / shards;
  return std::make_shared<SubsetDataset>(std::move(source), number, std::max<std::int64_t>(count, 0), shards);
}

}  // namespace tandem
