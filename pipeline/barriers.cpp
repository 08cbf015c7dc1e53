#include <tandem/pipeline/barriers.h>

#include <tandem/ops/collective.h>

namespace tandem::engine {

Graph insert_barriers(Graph graph, const PipelineSchedule& schedule) {
  const std::int64_t channel = graph.next_channel();
  for (const Task& task : schedule.order) {
    if (task.phase != Phase::barrier) continue;
    Tag tag;
    tag.phase = task.phase;
    tag.stage = task.stage;
    tag.microbatch = task.microbatch;
    tag.channel = channel + task.microbatch;
    graph.add(std::make_shared<BarrierOp>(), {}, tag);
  }
  return graph;
}

}  // namespace tandem::engine
