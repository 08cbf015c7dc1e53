#include <tandem/plan/expand_norms.h>

#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/norm.h>

namespace tandem::engine {

Graph expand_norms(const Graph& graph) {
  GraphRewrite rewrite(graph);
  for (const Node& node : graph.nodes()) {
    const auto* mapped = as<MappedOp>(node);
    if (!as<BatchNormOp>(mapped ? *mapped->inner : *node.op)) {
      rewrite.copy(node);
      continue;
    }
    Trace trace(rewrite.graph());
    trace.set_tag(node.tag);
    const Tensors arguments = trace.tensors(rewrite.now(node.inputs));
    const auto in_parts = [](const Op& norm, const Tensors& of_one) {
      return batch_norm_in_parts(static_cast<const BatchNormOp&>(norm), of_one[0], of_one[1], of_one[2]);
    };
    const Tensors parts = mapped ? replay_for_each(*mapped, arguments, mapped->mapped, in_parts)
                                 : in_parts(*node.op, arguments);
    for (std::size_t o = 0; o < parts.size(); ++o) rewrite.replace(node.outputs[o], trace.value(parts[o]));
  }
  return rewrite.take();
}

}  // namespace tandem::engine
