#include <tandem/dist/backward_program.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/core/runtime/sim_backend.h>

namespace tandem::engine {
namespace {

Instruction instruction(std::string name, LaneId lane, double ms) {
  Instruction s;
  s.name = std::move(name);
  s.lane = lane;
  s.cost.seconds = ms / kMsPerSecond;
  s.tag.phase = Phase::backward;
  return s;
}

}  // namespace

Cost cost_of_all_reduce(double bytes, const ThreadRates& rates, const AllReduceCosts& costs) {
  const double alone = costs.alone_ms(bytes, rates);
  if (alone == 0) return {};
  return {alone / kMsPerSecond, alone / costs.overlapped_ms(bytes, rates), rates.compute_rate};
}

Program backward_program(const std::vector<GradientLayer>& layers, const std::vector<AllReduceGroup>& groups,
                         const AllReduceCosts& costs) {
  require_each_layer_once(layers, groups);
  Program p;
  for (const LaneKind kind : {LaneKind::compute, LaneKind::collective, LaneKind::timer})
    p.lanes.push_back({0, kind, 0});
  const LaneId compute = 0, collective = 1, timer = 2;
  double timed_ms = 0;  // by the timers so far
  for (const AllReduceGroup& group : groups) {
    double bytes = 0;
    for (int l = group.first_layer; l <= group.last_layer; ++l) {
      const GradientLayer& layer = layers[static_cast<std::size_t>(l)];
      p.instructions.push_back(instruction(layer.name, compute, layer.compute_ms));
      bytes += layer.gradient_bytes;
    }
    std::vector<Wait> waits{{p.instructions.next_id() - 1, 0}};
    if (group.earliest_ms > timed_ms) {
      p.instructions.push_back(
          instruction(fmt::format("{} ms", group.earliest_ms), timer, group.earliest_ms - timed_ms));
      timed_ms = group.earliest_ms;
      waits.push_back({p.instructions.next_id() - 1, 0});
    }
    Instruction s = instruction(
        layers[static_cast<std::size_t>(group.first_layer)].name +
            (group.last_layer > group.first_layer ? fmt::format(" +{}", group.last_layer - group.first_layer)
                                                  : ""),
        collective, 0);
    s.waits = std::move(waits);
    s.cost = cost_of_all_reduce(bytes, group.rates, costs);
    p.instructions.push_back(std::move(s));
  }
  return p;
}

SimulatedBackward simulate_backward(const std::vector<GradientLayer>& layers,
                                    const std::vector<AllReduceGroup>& groups, const AllReduceCosts& costs) {
  const Program program = backward_program(layers, groups, costs);
  SimBackend sim(program);
  run(sim, 1);
  SimulatedBackward result;
  result.timeline = sim.timeline();
  for (const Span& span : sim.timeline().spans) {
    const LaneKind kind = program.lane(span.lane).kind;
    if (kind == LaneKind::compute)
      result.layer_end_ms.push_back(span.end * kMsPerSecond);  // spans of one lane are in order
    if (kind == LaneKind::collective) result.all_reduce_ms += (span.end - span.begin) * kMsPerSecond;
  }
  result.times.backward_ms = sim.now() * kMsPerSecond;
  result.times.compute_ms = result.layer_end_ms.back();
  result.times.residual_ms = result.times.backward_ms - result.times.compute_ms;
  return result;
}

}  // namespace tandem::engine
