#include <tandem/plan/expand_norms.h>

#include <unordered_map>

#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/shape.h>

namespace tandem::engine {
namespace {

// Splits the batch norm of one model into parts, and maps the parts over all models.
Tensors mapped_in_parts(const BatchNormOp& op, const MappedOp& mapped, const Tensors& inputs) {
  Types types;
  for (const Tensor& t : inputs) types.push_back(t.type());
  types = mapped.inner_types(types);
  Graph one;
  std::unordered_map<ValueId, Replayed> values;
  Tensors parts;
  {
    Trace trace(one);
    Tensors arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = one.add_value(types[i]);
      values[id] = {inputs[i], mapped.mapped[i]};
      arguments.push_back(trace.tensor(id));
    }
    parts = batch_norm_in_parts(op, arguments[0], arguments[1], arguments[2]);
  }
  replay_mapped(one, mapped.models, values);
  for (Tensor& t : parts) {
    const Replayed& all = values.at(t.impl()->value);
    t = with_model_axis(all.tensor, all.mapped, mapped.models);  // statistics of a shared input lack it
  }
  return parts;
}

}  // namespace

Graph expand_norms(const Graph& graph) {
  GraphRewrite rewrite(graph);
  for (const Node& node : graph.nodes()) {
    const auto* mapped = as<MappedOp>(node);
    const auto* norm = as<BatchNormOp>(mapped ? *mapped->inner : *node.op);
    if (!norm) {
      rewrite.copy(node);
      continue;
    }
    Trace trace(rewrite.graph());
    trace.set_tag(node.tag);
    const Tensors arguments = trace.tensors(rewrite.now(node.inputs));
    const Tensors parts = mapped ? mapped_in_parts(*norm, *mapped, arguments)
                                 : batch_norm_in_parts(*norm, arguments[0], arguments[1], arguments[2]);
    for (std::size_t o = 0; o < parts.size(); ++o) rewrite.replace(node.outputs[o], trace.value(parts[o]));
  }
  return rewrite.take();
}

}  // namespace tandem::engine
