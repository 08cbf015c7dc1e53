#include <tandem/datasets/shuffled_dataset.h>

#include <numeric>

#include <tandem/core/base/rng.h>

namespace tandem {
using namespace engine;

std::vector<std::int64_t> shuffled_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  const RngKey key{seed, static_cast<std::uint64_t>(epoch), fnv1a("shuffle")};
  for (std::size_t i = order.size(); i > 1; --i) {
    const double u = uniform(key, i, 0) + 0x1p-24 * uniform(key, i, 1);
    std::swap(order[i - 1], order[static_cast<std::size_t>(u * static_cast<double>(i))]);
  }
  return order;
}

ShuffledDataset::ShuffledDataset(DatasetPtr source, std::uint64_t seed)
    : DatasetAdapter(std::move(source)), seed_(seed) {}

std::int64_t ShuffledDataset::source_index(std::int64_t epoch, std::int64_t index) const {
  require_index(*this, index);
  return (*order(epoch))[static_cast<std::size_t>(index)];
}

std::shared_ptr<const ShuffledDataset::Order> ShuffledDataset::order(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (kept_[0].epoch != epoch) std::swap(kept_[0], kept_[1]);
  if (kept_[0].epoch != epoch)
    kept_[0] = {epoch, std::make_shared<const Order>(shuffled_order(size(), seed_, epoch))};
  return kept_[0].order;
}

}  // namespace tandem
