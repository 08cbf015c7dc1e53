#include <tandem/datasets/share.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {

Rows share_of(std::int64_t rows, int replica, int replicas, int microbatch, int microbatches) {
  if (replica < 0 || replica >= replicas || microbatch < 0 || microbatch >= microbatches)
    throw Error(fmt::format("replica {} of {}, micro-batch {} of {}: both are numbered from 0", replica,
                            replicas, microbatch, microbatches));
  const std::int64_t parts = std::int64_t{replicas} * microbatches, count = rows / parts;
  if (count * parts != rows)
    throw Error(fmt::format("a batch of {} cannot be divided among {} of {}; choose another batch size",
                            counted(rows, "sample"), counted(replicas, "replica"),
                            counted(microbatches, "micro-batch")));
  return {(std::int64_t{replica} * microbatches + microbatch) * count, count};
}

}  // namespace tandem
