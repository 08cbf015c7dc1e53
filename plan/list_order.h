#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// Returns the list order of a graph with complete tags: tasks in the schedule's order, nodes within a task
/// in the graph's order. Collectives, sends and copy-outs come right after the nodes they wait for, a receive
/// right after its send, copy-ins right before their first reader. A pass can list a node elsewhere with
/// `Tag::at`: swaps copy values in a few nodes earlier. An update comes as soon as its gradient exists and
/// its weight has been read, which frees the gradient's memory, unless the schedule lists another forward or
/// backward of its stage, a barrier, or the begin of a unit before it. If the gradient comes from an
/// all-reduce, the update comes at the end, in the order of the all-reduces, since the compute lane would
/// wait for it. With `large_gradients_last`, gradients at least twice as large as their operands, which no
/// other rank waits for, come last in their task. By then the activations are freed, but the operands of
/// these gradients must stay.
///
/// The list order alone starts nothing: an instruction starts when its lane is free and its waits are over.
/// A pass that ties an instruction to a position adds a wait too, as `with_copy_waits` (memory/swap.h) does.
std::vector<NodeId> list_order(const Graph& graph, const std::vector<Task>& tasks, bool large_gradients_last);

}  // namespace tandem::engine
