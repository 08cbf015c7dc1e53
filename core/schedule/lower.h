#pragma once
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

struct LowerOptions {
  int devices = 1;
  int replicas = 1;
  int microbatches = 1;
  const KernelTable* kernels = nullptr;  ///< sizes the workspaces
  int threads = 1;                       ///< of a compute lane
  /// Cost of an instruction whose op, types and tag are set; without it every instruction costs nothing.
  std::function<Cost(const Instruction&)> cost;
};

/// A value's place in a block that it shares; `shift` as in Member.
struct Location {
  BlockId block = -1;
  std::int64_t offset = 0;
  int shift = 0;
  explicit operator bool() const { return block >= 0; }
};

/// Which values share blocks (memory/buffer_assignment.h finds them).
struct BufferAssignment {
  std::vector<MemoryBlock>
      blocks;  ///< first one per state, in their order; then those that several values share
  std::vector<Location> location;         ///< per value; none: a block of its own
  std::map<ValueId, ValueId> overwrites;  ///< an output made in the place of a value -> that value
  std::set<NodeId> assigned_in_place;  ///< assigns whose value is made in the state's memory: no instruction
};

/// A graph in a list order (every node once, tags complete) becomes an unplanned Program: reads and views
/// become members, every other node an instruction.
Program lower(const Graph& graph, std::span<const NodeId> order, const BufferAssignment& buffers,
              const LowerOptions& options);

}  // namespace tandem::engine
