#pragma once
#include <cstdint>

namespace tandem {

/// Rows of a global batch.
struct Rows {
  std::int64_t first = 0, count = 0;
};

/// Returns the rows of a global batch of `rows` that one micro-batch gets. Replica r of R has the r-th of R
/// equal parts, and its micro-batch m of M the m-th of M equal parts of that. Throws Error if `rows` cannot
/// be divided in this way.
Rows share_of(std::int64_t rows, int replica, int replicas, int microbatch = 0, int microbatches = 1);

}  // namespace tandem
