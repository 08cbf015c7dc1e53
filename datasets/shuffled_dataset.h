#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// A view of another dataset in another order in every epoch, which is a function of seed and epoch. Keeps
/// the orders of the last two epochs that were read, 8 bytes per sample.
class ShuffledDataset final : public DatasetAdapter {
 public:
  ShuffledDataset(DatasetPtr source, std::uint64_t seed);

 private:
  using Order = std::vector<std::int64_t>;
  std::int64_t source_index(std::int64_t epoch, std::int64_t index) const override;
  std::shared_ptr<const Order> order(std::int64_t epoch) const;

  struct Kept {
    std::int64_t epoch = -1;
    std::shared_ptr<const Order> order;
  };
  const std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::array<Kept, 2> kept_;  // the one used last comes first
};

/// Returns the order of `size` samples in `epoch`: a Fisher–Yates shuffle with Philox's numbers.
std::vector<std::int64_t> shuffled_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

}  // namespace tandem
