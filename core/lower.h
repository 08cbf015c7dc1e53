#pragma once
#include <functional>
#include <span>

#include <tandem/core/graph.h>
#include <tandem/core/kernel.h>
#include <tandem/core/program.h>

namespace tandem {

struct LowerOptions {
  int devices = 1;
  int replicas = 1;
  int microbatches = 1;
  const KernelTable* kernels = nullptr;  ///< sizes the workspaces
  int threads = 1;                       ///< of a compute lane
  /// Cost of a step whose op, types and tag are set; without it every step costs nothing.
  std::function<Cost(const Step&)> cost;
};

/// A graph in a list order (every node once, tags complete) becomes a schedule: reads and views become
/// members, every other node a step. What shares a block is decided on the way (homes.h).
Program lower(const Graph& graph, std::span<const NodeId> order, const LowerOptions& options);

}  // namespace tandem
