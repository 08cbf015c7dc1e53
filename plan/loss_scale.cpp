#include <tandem/plan/loss_scale.h>

#include <cmath>
#include <string>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/over_models.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

constexpr double kLargest = 0x1p126;  // f32 holds its inverse exactly

Tensor number(double value) { return Tensor::full({DType::f32, {}}, value); }

Tag tag_where(const State& lies, Phase phase) { return tag_of(phase, "loss_scale", lies.stage, lies.device); }

// The scale lies where the loss is.
const State& state_of_scale(const Graph& g) { return g.state(g.find_state(std::string(kLossScale))); }

// The scale, 0 replaced by `initial`. The new nodes have the trace's tag.
Tensor current(Trace& trace, const LossScale& scale) {
  const Tensor kept = trace.read(trace.graph().find_state(std::string(kLossScale)));
  return where(equal(kept, number(0)), number(scale.initial), kept);
}

}  // namespace

ValueId scale_loss(Graph& forward, ValueId loss, const LossScale& scale) {
  const Tag at = forward.producer(loss).tag;
  for (const std::string_view path : {kLossScale, kFiniteBatches})
    forward.add_state(
        {std::string(path), {DType::f32, forward.type(loss).shape}, false, at.stage, at.device});
  Trace trace(forward);
  trace.set_tag(tag_where(state_of_scale(forward), Phase::forward));
  const Tensor factor = current(trace, scale);
  return trace.value(trace.tensor(loss) * cast(factor, forward.type(loss).dtype));
}

void unscale_gradients(TrainingGraph& training, const LossScale& scale) {
  Trace trace(training.graph);
  trace.set_tag(tag_where(state_of_scale(training.graph), Phase::update));
  const Tensor inverse = number(1) / current(trace, scale);
  for (auto& [state, value] : training.grads) {
    trace.set_tag(tag_where(training.graph.state(state), Phase::update));
    const Tensor grad = trace.tensor(value);
    value = trace.value(grad * over_models(cast(inverse, grad.dtype()), grad.type().rank()));
  }
}

void update_loss_scale(TrainingGraph& training, const LossScale& scale) {
  Trace trace(training.graph);
  trace.set_tag(tag_where(state_of_scale(training.graph), Phase::update));
  const StateId count = training.graph.find_state(std::string(kFiniteBatches));
  const Tensor now = current(trace, scale), finite = trace.tensor(training.update_if);
  const Tensor row = where(finite, trace.read(count) + number(1), number(0));
  const Tensor grows = less_equal(number(scale.growth_interval), row);
  const Tensor larger = minimum(now * number(2), number(kLargest));
  trace.assign(count, where(grows, number(0), row));
  trace.assign(training.graph.find_state(std::string(kLossScale)),
               where(finite, where(grows, larger, now), maximum(now * number(0.5), number(1))));
}

void check(const LossScale& scale) {
  int exponent = 0;
  if (!(scale.initial >= 1) || std::frexp(scale.initial, &exponent) != 0.5 || scale.initial > kLargest)
    throw Error(fmt::format("a loss scale of {}: it must be a power of two from 1 to 2^126", scale.initial));
  if (scale.growth_interval < 1 || scale.growth_interval > 1 << 24)
    throw Error(fmt::format("a loss scale that grows after {} batches: it must be from 1 to 2^24 = 16777216",
                            scale.growth_interval));
}

}  // namespace tandem::engine
