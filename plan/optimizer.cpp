#include <tandem/plan/optimizer.h>

#include <map>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/graph_ops.h>
#include <tandem/core/trace.h>

namespace tandem {
namespace {

Tag update_tag(const StateSlot& slot) {
  Tag tag;
  tag.phase = Phase::update;
  tag.path = slot.path;
  tag.stage = slot.stage;
  return tag;
}

}  // namespace

StepGraph add_updates(StepGraph step, const SgdOptions& sgd, int models) {
  Graph& g = step.graph;
  for (const Node& n : g.nodes())
    if (const auto* input = dynamic_cast<const Input*>(n.op.get()); input && input->input == "lr")
      throw Error("the model has an input 'lr', which is the optimiser's; give the model's another name");
  std::map<int, ValueId> rates;  // one learning-rate input a stage
  for (const auto& [id, grad] : step.grads) {
    const StateSlot slot = g.slot(id);
    Trace trace(g);
    trace.set_tag(update_tag(slot));
    if (!rates.contains(slot.stage)) {
      Shape per_model;
      if (models > 1) per_model = {models};
      const DType dtype = slot.type.dtype == DType::f64 ? DType::f64 : DType::f32;
      rates[slot.stage] = trace.value(
          trace.apply(std::make_shared<Input>("lr", TensorType{dtype, per_model}, true), {}).at(0));
    }
    const Tensor w = trace.read(id), lr = trace.tensor(rates[slot.stage]), gradient = trace.tensor(grad);
    trace.set_tag(update_tag(slot));
    if (sgd.momentum == 0) {
      trace.assign(id, sgd_update(w, gradient, lr, sgd).at(0));
      continue;
    }
    const SlotId moment =
        g.add_slot({fmt::format("{}momentum.{}", kOptimizerPath, slot.path), slot.type, false, slot.stage});
    const Tensor v = trace.read(moment);
    trace.set_tag(update_tag(slot));
    const Tensors updated = sgd_update(w, v, gradient, lr, sgd);
    trace.assign(id, updated.at(0));
    trace.assign(moment, updated.at(1));
  }
  return step;
}

}  // namespace tandem
