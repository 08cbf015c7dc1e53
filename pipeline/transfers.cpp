#include <tandem/pipeline/transfers.h>

#include <map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_edit.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/ops/collective.h>

namespace tandem::engine {

Graph insert_transfers(const Graph& graph) {
  GraphEdit edit(graph);
  const auto readers = graph.readers();
  std::int64_t channel = graph.next_channel();
  for (const ValueId v : graph.values().ids()) {
    const NodeId producer = graph.value(v).producer;
    if (producer < 0) continue;
    const Tag made = graph.node(producer).tag;
    std::map<int, ValueId> arrived;  // by device
    for (NodeId r : readers[v]) {
      const auto& [stage, to] = std::pair(graph.node(r).tag.stage, graph.node(r).tag.device);
      if (to == made.device) continue;
      if (as<ReadOp>(graph.node(producer)))
        throw Error(fmt::format("state '{}' of stage {} is used on stage {}", made.path, made.stage, stage));
      if (!arrived.contains(to)) {
        const Tag from = made.on_channel(channel++);
        edit.add(std::make_shared<SendOp>(to), {v}, from);
        arrived[to] =
            edit.add1(std::make_shared<ReceiveOp>(made.device, graph.type(v)), {}, from.on_stage(stage, to));
      }
      edit.rewire(r, v, arrived[to]);
    }
  }
  return edit.finish();
}

}  // namespace tandem::engine
