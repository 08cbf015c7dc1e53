#pragma once
#include <functional>
#include <map>
#include <set>
#include <span>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

struct LowerOptions {
  int devices = 1;
  int replicas = 1;
  int microbatches = 1;
  const KernelTable* kernels = nullptr;  ///< tells the sizes of workspaces; null: none
  int threads = 1;                       ///< of a compute lane
  /// Returns the cost of an instruction whose op, types and tag are set. Empty: instructions cost nothing.
  std::function<Cost(const Instruction&)> cost;
};

/// The place of a value in a block that it shares with others; `shift` is as in Member.
struct Location {
  BlockId block = -1;
  std::int64_t offset = 0;
  int shift = 0;
  explicit operator bool() const { return block >= 0; }
};

/// The block of a state: a Program's first blocks are the states', in their order.
inline BlockId block_of(StateId state) { return std::int32_t{state}; }

/// Which values share blocks (memory/buffer_assignment.h finds them).
struct BufferAssignment {
  IdVector<BlockId, MemoryBlock> blocks;  ///< the states' blocks, then those that values share
  IdVector<ValueId, Location> location;   ///< empty: the value has a block of its own
  std::map<ValueId, ValueId> overwrites;  ///< an output -> the value that it overwrites
  std::set<NodeId> assigned_in_place;  ///< assigns without instruction: their value is in the state's memory
};

/// A wait that a pass asks for: the instruction of `node` of a unit begins after that of `awaited`, `back`
/// units before, has ended.
struct NodeWait {
  NodeId node, awaited;
  int back = 0;
};

/// Returns whether `lower` makes an instruction of a node: reads and views become members, and assigns in
/// place need nothing.
bool has_instruction(const Graph& graph, NodeId node, const BufferAssignment& buffers);

/// Turns a graph in a list order (every node once, tags complete) into an unplanned Program, with the waits
/// that passes ask for.
Program lower(const Graph& graph, std::span<const NodeId> order, const BufferAssignment& buffers,
              const LowerOptions& options, std::span<const NodeWait> waits = {});

}  // namespace tandem::engine
