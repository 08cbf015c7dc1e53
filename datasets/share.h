#pragma once
#include <cstdint>

namespace tandem {

/// Rows of a global batch.
struct Rows {
  std::int64_t first = 0, count = 0;
};

/// Who of a global batch of `rows` gets which: replica r of R the r-th of R equal parts, and of that
/// micro-batch m of M the m-th of M. Throws Error where the rows cannot be so divided.
Rows share_of(std::int64_t rows, int replica, int replicas, int microbatch = 0, int microbatches = 1);

}  // namespace tandem
