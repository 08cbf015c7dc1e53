#include <tandem/plan/weight_predictor.h>

#include <memory>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {

Tensor WeightPredictor::predict(StateId weight, int age, const BatchRange& updates, const Tag& tag) {
  const Graph& g = trace_.graph();
  const State of = g.state(weight);
  trace_.set_tag(tag);
  const auto read = [&](StateId s) {
    return trace_.apply(std::make_shared<ReadOp>(s, age, g.state(s).type), {}).at(0);
  };
  const auto kept = [&](const char* what) {
    return read(g.find_state(fmt::format("{}{}.{}", kOptimizerPath, what, of.path)));
  };
  const Tensor w = read(weight);
  const ParameterGroup* group = group_of(groups_, of.path);
  Tensor c = rates(tag, updates, of.type.dtype);
  if (group && group->lr_scale != 1) c = scale(c, group->lr_scale);
  if (const auto* sgd = std::get_if<SgdOptions>(&optimizer_)) {
    if (sgd->momentum == 0)
      throw Error(
          "weights are predicted along the momentum, which is 0: give the optimizer a momentum; or choose a "
          "schedule without predictions (dualpipe), and measure none");
    return tandem::predict(w, kept("momentum"), c);
  }
  AdamOptions adam = std::get<AdamOptions>(optimizer_);
  if (group && group->weight_decay) adam.weight_decay = *group->weight_decay;
  return adam_predict(w, kept("exp_avg"), kept("exp_avg_sq"), kept("step"), c, adam);
}

// The sum of the learning rates of these updates.
Tensor WeightPredictor::rates(const Tag& tag, const BatchRange& updates, DType weight) {
  const DType dtype = weight == DType::f64 ? DType::f64 : DType::f32;
  const auto key = std::tuple(tag.stage, tag.lag, updates.first, updates.count, dtype);
  const auto [found, is_new] = rates_.try_emplace(key);
  if (is_new) {
    const Shape per_model = models_ > 1 ? Shape{models_} : Shape{};
    trace_.set_tag(tag.named("").at(tag.position));
    found->second = trace_
                        .apply(std::make_shared<InputOp>(kLearningRateInput, TensorType{dtype, per_model},
                                                         /*per_model=*/true, updates),
                               {})
                        .at(0);
    trace_.set_tag(tag);
  }
  return found->second;
}

}  // namespace tandem::engine
