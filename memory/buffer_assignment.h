#pragma once
#include <set>
#include <span>

#include <tandem/core/graph/graph.h>
#include <tandem/core/schedule/lower.h>

namespace tandem::engine {

/// Inserts a copy of every operand that an op with `Op::joins_operands` cannot own: one that another node
/// reads, that is a view or a state's memory, or that the op takes twice. `assign_buffers` needs such a
/// graph.
Graph copy_shared_operands(const Graph& graph);

/// Decides which values share blocks, before lowering makes any instruction:
/// - a value that is assigned to a state is made in the state's memory;
/// - the operands of an op with `Op::joins_operands`, such as the gradients of a fusion group, lie one after
///   another in their own block, and the op works on them there;
/// - an op that can work in place does so on an input that no later node uses.
/// No op works in place on the values of `keep`. Throws Error if an operand to be joined already lies
/// somewhere else.
BufferAssignment assign_buffers(const Graph& graph, std::span<const NodeId> order,
                                const std::set<ValueId>& keep = {});

}  // namespace tandem::engine
