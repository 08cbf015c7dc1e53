#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include <tandem/datasets/dataset_adapter.h>

namespace tandem {

/// Another order in every epoch: a function of seed and epoch. Orders of the last two epochs asked for are
/// kept, 8 bytes a sample.
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
  mutable std::array<Kept, 2> kept_;  // the one asked for last first
};

/// The order of `size` samples in `epoch`: Fisher–Yates by Philox.
std::vector<std::int64_t> shuffled_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

}  // namespace tandem
