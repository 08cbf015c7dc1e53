#include <tandem/ops/update.h>

#include <array>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/named.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/over_models.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

void check_weights(TypesView tensors) {
  const TensorType& w = tensors[0];
  if (w.dtype != DType::f32 && w.dtype != DType::f64)
    throw Error(fmt::format("updates f32 or f64, not {}", to_string(w)));
  for (const auto& t : tensors)
    if (t != w) throw Error(fmt::format("{} does not fit weights {}", to_string(t), to_string(w)));
}

void check_coefficient(const char* what, const TensorType& c, const TensorType& w) {
  const bool one_per_model = c.rank() == 1 && w.rank() >= 1 && c.shape[0] == w.shape[0];
  if ((c.dtype != DType::f32 && c.dtype != DType::f64) || !(c.rank() == 0 || one_per_model))
    throw Error(fmt::format("{} must be f32 or f64, a scalar or one value per model, not {} for weights {}",
                            what, to_string(c), to_string(w)));
}

// Checks the guard, if there is one, and returns the inputs without it.
TypesView unguarded(TypesView inputs, bool guarded, std::size_t count) {
  require_inputs(inputs, count + (guarded ? 1 : 0));
  if (guarded) {
    const TensorType &guard = inputs.back(), &w = inputs[0];
    const bool one_per_model = guard.rank() == 1 && w.rank() >= 1 && guard.shape[0] == w.shape[0];
    if (guard.dtype != DType::b8 || !(guard.rank() == 0 || one_per_model))
      throw Error(fmt::format("update_if must be a bool or one bool per model, not {} for weights {}",
                              to_string(guard), to_string(w)));
  }
  return inputs.first(count);
}

// Checks that all inputs but the last have one type, and that the last is a coefficient.
void check_update(TypesView inputs) {
  check_weights(inputs.first(inputs.size() - 1));
  check_coefficient("the coefficient", inputs.back(), inputs[0]);
}

// Gives the first `states` inputs (weights, gradients, statistics, step numbers) a model axis; the later
// inputs can stay shared by the models.
template <class O> Tensors mapped_update(const O& op, const VmapArgs& args, std::size_t states) {
  Tensors inputs = args.inputs;
  for (std::size_t i = 0; i < states; ++i)
    inputs[i] = with_model_axis(inputs[i], args.mapped[i], args.models);
  return apply_op(op, inputs);
}

// Applies an update with its options; it is guarded if `update_if` is defined.
template <class O, class Options>
Tensors update(const Options& options, Tensors inputs, const Tensor& update_if) {
  if (update_if) inputs.push_back(update_if);
  return apply_op(std::make_shared<O>(options, update_if.defined()), std::move(inputs));
}

std::string guard_text(bool guarded) { return guarded ? " guarded" : ""; }

}  // namespace

SgdRule sgd_rule(std::string_view name) {
  using enum SgdRule;
  constexpr std::array<Named<SgdRule>, 3> rules{{{"momentum", momentum}, {"ema", ema}, {"raw+ema", raw_ema}}};
  return row_named(name, rules, "rule of sgd").value;
}

SgdUpdateOp::SgdUpdateOp(SgdOptions options, bool guarded, bool keeps_velocity)
    : options(options), guarded(guarded), keeps_velocity(keeps_velocity) {
  if (options.nesterov && options.momentum == 0)
    throw Error("sgd_update: nesterov needs a momentum other than 0");
  if (options.nesterov && options.rule != SgdRule::momentum)
    throw Error("sgd_update: nesterov needs the rule momentum");
}

std::string SgdUpdateOp::attributes() const {
  return fmt::format("momentum={} weight_decay={} nesterov={} rule={}{}{}", options.momentum,
                     options.weight_decay, int{options.nesterov}, static_cast<int>(options.rule),
                     guard_text(guarded), keeps_velocity ? " keeps_velocity" : "");
}
Types SgdUpdateOp::infer(TypesView inputs) const {
  check_update(unguarded(inputs, guarded, has_velocity() ? 4 : 3));
  return Types(has_velocity() ? 2 : 1, inputs[0]);
}
Tensors SgdUpdateOp::vjp(const VjpArgs&) const { no_rule(*this, "vjp", "an update ends the batch's graph"); }
Tensors SgdUpdateOp::vmap(const VmapArgs& args) const {
  return mapped_update(*this, args, has_velocity() ? 3 : 2);
}
Work SgdUpdateOp::cost(TypesView inputs, TypesView outputs) const {
  return streaming_work(inputs, outputs, has_velocity() ? 3 : 4);
}
std::vector<Alias> SgdUpdateOp::may_alias(TypesView) const {
  std::vector<Alias> aliases{{0, 0, Alias::in_place}};             // w -> w'
  if (has_velocity()) aliases.push_back({1, 1, Alias::in_place});  // v -> v'
  return aliases;
}

AdamUpdateOp::AdamUpdateOp(AdamOptions options, bool guarded) : options(options), guarded(guarded) {
  for (const double beta : {options.beta1, options.beta2})
    if (!(beta >= 0 && beta < 1))
      throw Error(fmt::format("adam_update: a beta of {}: it must be in [0, 1)", beta));
}

std::string AdamUpdateOp::attributes() const {
  return fmt::format("beta1={} beta2={} epsilon={} weight_decay={} decoupled={}{}", options.beta1,
                     options.beta2, options.epsilon, options.weight_decay, int{options.decoupled},
                     guard_text(guarded));
}
Types AdamUpdateOp::infer(TypesView inputs) const {
  inputs = unguarded(inputs, guarded, 6);
  check_weights(inputs.first(4));
  check_coefficient("the number of steps", inputs[4], inputs[0]);
  check_coefficient("the learning rate", inputs[5], inputs[0]);
  return {inputs[0], inputs[0], inputs[0], inputs[4]};
}
Tensors AdamUpdateOp::vjp(const VjpArgs&) const { no_rule(*this, "vjp", "an update ends the batch's graph"); }
Tensors AdamUpdateOp::vmap(const VmapArgs& args) const { return mapped_update(*this, args, 5); }
Work AdamUpdateOp::cost(TypesView inputs, TypesView outputs) const {
  return streaming_work(inputs, outputs, 5);  // twenty operations per element, over four outputs
}
std::vector<Alias> AdamUpdateOp::may_alias(TypesView) const {
  return {{0, 0, Alias::in_place}, {1, 1, Alias::in_place}, {2, 2, Alias::in_place}, {3, 4, Alias::in_place}};
}

Types PredictOp::infer(TypesView inputs) const {
  check_update(unguarded(inputs, false, 3));
  return {inputs[0]};
}
Tensors PredictOp::vjp(const VjpArgs&) const {
  no_rule(*this, "vjp", "gradients are taken with respect to predicted weights");
}
Tensors PredictOp::vmap(const VmapArgs& args) const { return mapped_update(*this, args, 2); }
Work PredictOp::cost(TypesView inputs, TypesView outputs) const { return streaming_work(inputs, outputs, 2); }
std::vector<Alias> PredictOp::may_alias(TypesView) const {
  return {{0, 0, Alias::in_place}, {0, 1, Alias::in_place}};
}

Tensors sgd_update(const Tensor& w, const Tensor& v, const Tensor& g, const Tensor& lr,
                   const SgdOptions& options, const Tensor& update_if) {
  if (options.momentum == 0) throw Error("sgd_update: momentum is 0, so do not pass v");
  return update<SgdUpdateOp>(options, {w, v, g, lr}, update_if);
}

Tensors sgd_update(const Tensor& w, const Tensor& g, const Tensor& lr, const SgdOptions& options,
                   const Tensor& update_if) {
  if (options.momentum != 0) throw Error("sgd_update: with momentum, pass v");
  return update<SgdUpdateOp>(options, {w, g, lr}, update_if);
}

Tensors adam_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g, const Tensor& t,
                    const Tensor& lr, const AdamOptions& options, const Tensor& update_if) {
  return update<AdamUpdateOp>(options, {w, m, v, g, t, lr}, update_if);
}

Tensor predict(const Tensor& w, const Tensor& v, const Tensor& c) {
  return apply_op1(std::make_shared<PredictOp>(), {w, v, c});
}

Tensor adam_predict(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& t, const Tensor& c,
                    const AdamOptions& options) {
  const DType dtype = w.dtype();
  const auto of_model = [&](const Tensor& factor) {
    return over_models(cast(factor, dtype), w.type().rank());
  };
  // In f64, as the update computes them: in f32, 1 − 0.999 would be wrong by 6 parts in 100,000.
  const Tensor step = cast(t, DType::f64), rate = cast(c, DType::f64);
  const auto bias = [&](double beta) { return 1 - pow(Tensor::full({DType::f64, {}}, beta), step); };
  const Tensor is_first = less_equal(step, 0);
  const Tensor length = where(is_first, step, rate / bias(options.beta1)),
               root = sqrt(where(is_first, 1 - step, bias(options.beta2)));
  const Tensor moved = of_model(length) * m / (sqrt(v) / of_model(root) + options.epsilon);
  if (!options.decoupled || options.weight_decay == 0) return w - moved;
  return of_model(1 - rate * options.weight_decay) * w - moved;
}

}  // namespace tandem
