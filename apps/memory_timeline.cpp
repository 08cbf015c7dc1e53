#include "memory_timeline.h"

#include <fmt/format.h>

#include <tandem/core/base/units.h>
#include <tandem/core/schedule/program.h>

namespace tandem::apps {
using namespace engine;
namespace {

constexpr LaneId kCompute = 0, kToHost = 1, kFromHost = 2;

// The graph that a value belongs to: that of the first node that uses it.
std::vector<int> graphs_of_values(const MemoryProblem& problem) {
  std::vector<int> graphs(problem.values.size(), 0);
  for (int g = 0; g < std::ssize(problem.graphs); ++g)
    for (const MemoryNode& n : problem.graphs[static_cast<std::size_t>(g)].nodes) {
      for (const int v : n.inputs) graphs[static_cast<std::size_t>(v)] = g;
      for (const int v : n.outputs) graphs[static_cast<std::size_t>(v)] = g;
    }
  return graphs;
}

}  // namespace

Timeline timeline_of(const MemoryProblem& problem, const MemoryPlan& plan) {
  const std::vector<int> graphs = graphs_of_values(problem);
  const std::int64_t peak = replay(problem, plan).peak_bytes;
  Timeline t;
  for (const char* lane : {"compute", "to host", "from host"}) t.lane_names.emplace_back(lane);
  for (const MemorySpan& span : spans_of(problem, plan)) {
    const MemoryStep& step = span.step;
    LaneId lane = kCompute;
    if (step.kind == MemoryStep::Kind::d2h) lane = kToHost;
    if (step.kind == MemoryStep::Kind::h2d) lane = problem.link.duplex ? kFromHost : kToHost;
    const bool computes = step.node >= 0;
    const int graph = computes ? step.graph : graphs[static_cast<std::size_t>(step.value)];
    std::string name, category;
    if (computes) {
      const MemoryNode& node =
          problem.graphs[static_cast<std::size_t>(graph)].nodes[static_cast<std::size_t>(step.node)];
      const bool again = step.kind == MemoryStep::Kind::recompute;
      name = again ? node.name + " again" : node.name;
      category = again ? "recompute" : std::string(name_of(node.phase));
    } else {
      name =
          fmt::format("{} {}", name_of(step.kind), problem.values[static_cast<std::size_t>(step.value)].id);
      category = step.kind == MemoryStep::Kind::d2h   ? "copy-out"
                 : step.kind == MemoryStep::Kind::h2d ? "copy-in"
                                                      : "wait";
    }
    const InstructionId id = t.instruction_names.next_id();
    t.instruction_names.push_back(std::move(name));
    t.categories.push_back(std::move(category));
    t.live.push_back(span.live_bytes);
    t.planned.push_back(peak);
    t.weight_reads.emplace_back();
    t.spans.push_back({.lane = lane,
                       .instruction = id,
                       .batch = graph,
                       .begin = span.begin_ms / kMsPerSecond,
                       .end = span.end_ms / kMsPerSecond});
  }
  return t;
}

}  // namespace tandem::apps
