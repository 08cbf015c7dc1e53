#include "measured_feed.h"

namespace tandem::apps {

TrainFeed measured_feed(const std::vector<DatasetPtr>& data, std::int64_t batch_size, int microbatches,
                        const std::vector<std::uint64_t>& seeds) {
  return {
      data,  {.batch_size = batch_size, .drop_last = true}, microbatches,
      seeds, [](std::size_t, std::int64_t) { return 0.0; }, [](std::int64_t, const std::vector<double>&) {}};
}

}  // namespace tandem::apps
