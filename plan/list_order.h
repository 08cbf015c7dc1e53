#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/pipeline/schedules.h>

namespace tandem::engine {

/// The list order of a graph with complete tags: tasks in the schedule's order, nodes within a task in the
/// graph's. Collectives, sends and copy-outs come right after what they wait for, a receive right after
/// its send, copy-ins a few nodes before their first reader. An update comes as soon as its gradient is there
/// and its weight has been read, so that the gradient's memory is free again; where the gradient comes from
/// an all-reduce it comes at the end instead, in the order of the reductions, since the lane would wait for
/// it. `large_gradients_last`: gradients at least twice as large as what they are computed from, which no
/// other rank waits for, are the last that their task computes. By then the activations are gone, but what
/// these gradients are computed from has to stay.
std::vector<NodeId> list_order(const Graph& graph, const std::vector<Task>& tasks, bool large_gradients_last);

}  // namespace tandem::engine
