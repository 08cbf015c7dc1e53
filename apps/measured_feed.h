#pragma once
#include <cstdint>
#include <vector>

#include <tandem/train/feed.h>

namespace tandem::apps {

/// Returns the Host of a training Program that is measured: it gives full batches, and a rate of 0, which
/// keeps the weights and all values as they are. It ignores the losses.
TrainFeed measured_feed(const std::vector<DatasetPtr>& data, std::int64_t batch_size, int microbatches = 1,
                        const std::vector<std::uint64_t>& seeds = {1});

}  // namespace tandem::apps
