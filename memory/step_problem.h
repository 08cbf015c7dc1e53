#pragma once
#include <set>
#include <span>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/lower.h>
#include <tandem/core/schedule/program.h>
#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// A graph in its list order, as `lower` takes it.
struct ListedGraph {
  Graph graph;
  std::vector<NodeId> order;
  std::vector<NodeWait> waits{};
  std::set<ValueId> keep{};  ///< no op works in place on these
};

/// What one device does in a training step, as a memory problem: of a ring of arrays of models, of a graph
/// for each; otherwise of one.
struct StepProblem {
  MemoryProblem problem;
  std::vector<std::vector<NodeId>> nodes;  ///< of the problem's nodes, by graph
  std::vector<ValueId> values;             ///< of the problem's values; −1 for those that cannot move
};

/// Returns the values that a memory plan may move or compute again: what forward makes. `keep` of a graph
/// that is to be planned must hold them.
std::set<ValueId> movable_values(const Graph& graph);

/// Returns the memory problem of a device's part of a planned Program, which `lower` made of `step` with
/// `buffers`. Its nodes are the device's instructions with their costs; those of other lanes than the compute
/// lane take no time of it. Its values are blocks, aligned as they are placed; a block that several
/// instructions write is made by the first, and stays where it is. What `replay` says of a plan for it holds
/// for the Program of `apply_memory_plans`. Throws Error if the Program works on several batches at once,
/// other than for a ring.
StepProblem step_problem(const ListedGraph& step, const BufferAssignment& buffers, const Program& program,
                         int device, const CopyLink& link);

/// Carries out a memory plan on each device: `recompute` becomes a copy of its node, `d2h` and `h2d` become
/// copies, and waits tie them to the list positions at which the plan has them. Values are computed with the
/// same bits.
ListedGraph apply_memory_plans(const ListedGraph& step, std::span<const StepProblem> problems,
                               std::span<const MemoryPlan> plans);

}  // namespace tandem::engine
