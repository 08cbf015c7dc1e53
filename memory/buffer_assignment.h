#pragma once
#include <span>

#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/lower.h>

namespace tandem::engine {

/// Copies every operand that an op with `Op::joins_operands` cannot have to itself: one that another node
/// reads, that is a view or a state's memory, or that the op takes twice. `assign_buffers` wants such a
/// graph.
Graph copy_shared_operands(const Graph& graph);

/// Decides which values share blocks, before any instruction is made:
/// - the value that a state is assigned is made in the state's memory;
/// - the operands of an op with `Op::joins_operands`, such as the gradients of a fusion group, lie one after
///   another in a block of their own, and the op works on them there;
/// - an op that may work in place does so on an input that no later node uses.
/// Throws Error where an operand to be joined lies somewhere else already.
BufferAssignment assign_buffers(const Graph& graph, std::span<const NodeId> order);

}  // namespace tandem::engine
