#pragma once
#include <vector>

#include <tandem/core/graph.h>
#include <tandem/pipeline/schedules.h>

namespace tandem {

/// The list order of a graph with complete tags: tasks in the schedule's order, nodes within a task in the
/// graph's. Collectives, sends and copy-outs come right after what they wait for, a receive right after
/// its send, copy-ins a few nodes before their first reader.
std::vector<NodeId> list_order(const Graph& graph, const std::vector<Task>& tasks);

}  // namespace tandem
