#pragma once
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Returns why a training step has dense updates of tables (plan/sparse_updates.h): a line per reason, with
/// the number of tables and the path of the first. Empty if all updates are sparse, or if the strategy wants
/// none to be. `forward` is as for `build`.
std::vector<std::string> dense_tables(const Graph& forward, const Strategy& strategy);

}  // namespace tandem::engine
