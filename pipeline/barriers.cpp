#include <tandem/pipeline/barriers.h>

#include <tandem/ops/collective.h>

namespace tandem::engine {

Graph insert_barriers(Graph graph, const PipelineSchedule& schedule) {
  const std::int64_t channel = graph.next_channel();
  for (const Task& task : schedule.tasks) {
    if (task.phase != Phase::barrier) continue;
    const int device = schedule.stages[static_cast<std::size_t>(task.stage)].device;
    const Tag tag = tag_of(task.phase, "", task.stage, device).of_microbatch(task.microbatch);
    graph.add(std::make_shared<BarrierOp>(), {}, tag.on_channel(channel + task.microbatch));
  }
  return graph;
}

}  // namespace tandem::engine
